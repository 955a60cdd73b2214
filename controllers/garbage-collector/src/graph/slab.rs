//! The memory of nodes, and the lookup by uid.

use std::{collections::BTreeSet, hash::BuildHasher};

use api::Uid;
use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::{
    ids::{Id, steps},
    node::Node,
};

/// Nodes in one page. Pages do not move when the graph grows, and empty pages are freed.
const PAGE: usize = 256;

/// Nodes by place and by uid. The table of uids stores places, not uids.
pub(super) struct Slab {
    pages: Vec<Page>,
    /// Pages with free places. The first is filled first, so that the last ones become empty.
    roomy: BTreeSet<u32>,
    by_uid: HashTable<Id>,
    hasher: FixedState,
}

#[derive(Default)]
struct Page {
    nodes: Vec<Option<Node>>,
    /// Free places between used ones.
    free: Vec<u8>,
}

impl Slab {
    /// An empty slab. Equal seeds give equal hashes, so that runs are reproducible.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            pages: Vec::new(),
            roomy: BTreeSet::new(),
            by_uid: HashTable::new(),
            hasher: FixedState::with_seed(seed),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub(super) fn find(&self, uid: &Uid) -> Option<Id> {
        let is_it = |&id: &Id| {
            steps::count();
            self.get(id).is_some_and(|it| it.uid == *uid)
        };
        self.by_uid.find(self.hasher.hash_one(uid), is_it).copied()
    }

    pub(super) fn get(&self, id: Id) -> Option<&Node> {
        node_at(&self.pages, id)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Node> {
        let (page, place) = place_of(id);
        self.pages.get_mut(page)?.nodes.get_mut(place)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.pages.iter().flat_map(|it| it.nodes.iter().flatten())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.pages.iter_mut().flat_map(|it| it.nodes.iter_mut().flatten())
    }

    /// Adds a node. The uid must not be in the slab yet.
    pub(super) fn insert(&mut self, node: Node) -> Id {
        let hash = self.hasher.hash_one(&node.uid);
        let id = self.place(node);
        let (pages, hasher) = (&self.pages, &self.hasher);
        self.by_uid.insert_unique(hash, id, |&id| hash_at(pages, hasher, id));
        id
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Node> {
        let hash = self.hasher.hash_one(&self.get(id)?.uid);
        if let Ok(found) = self.by_uid.find_entry(hash, |it| *it == id) {
            found.remove();
        }
        if self.by_uid.capacity() > 1024 && 8 * self.by_uid.len() < self.by_uid.capacity() {
            let (pages, hasher) = (&self.pages, &self.hasher);
            self.by_uid.shrink_to(2 * self.by_uid.len(), |&id| hash_at(pages, hasher, id));
        }
        self.take(id)
    }

    /// The size of the heap memory, without what nodes point to.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        use super::tests::given;
        let nodes = |it: &Page| given(it.nodes.capacity() * size_of::<Option<Node>>()) + given(it.free.capacity());
        let pages: usize = self.pages.iter().map(nodes).sum();
        pages + given(self.pages.capacity() * size_of::<Page>()) + given(self.by_uid.allocation_size())
    }

    fn place(&mut self, node: Node) -> Id {
        let number = match self.roomy.first() {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.pages.len()).unwrap_or(u32::MAX);
                self.pages.push(Page::default());
                self.roomy.insert(number);
                number
            }
        };
        let Some(page) = self.pages.get_mut(number as usize) else { return Id(u32::MAX) };
        let place = match page.free.pop() {
            Some(place) => {
                if let Some(free) = page.nodes.get_mut(usize::from(place)) {
                    *free = Some(node);
                }
                usize::from(place)
            }
            None => {
                page.nodes.reserve_exact(PAGE - page.nodes.len());
                page.nodes.push(Some(node));
                page.nodes.len() - 1
            }
        };
        if page.free.is_empty() && page.nodes.len() == PAGE {
            self.roomy.remove(&number);
        }
        Id(number * PAGE as u32 + place as u32)
    }

    fn take(&mut self, id: Id) -> Option<Node> {
        let (number, place) = place_of(id);
        let page = self.pages.get_mut(number)?;
        let node = page.nodes.get_mut(place)?.take()?;
        page.free.push(u8::try_from(place).ok()?);
        if page.free.len() == page.nodes.len() {
            *page = Page::default();
        }
        self.roomy.insert(u32::try_from(number).ok()?);
        Some(node)
    }
}

fn place_of(id: Id) -> (usize, usize) {
    (id.0 as usize / PAGE, id.0 as usize % PAGE)
}

fn node_at(pages: &[Page], id: Id) -> Option<&Node> {
    let (page, place) = place_of(id);
    pages.get(page)?.nodes.get(place)?.as_ref()
}

fn hash_at(pages: &[Page], hasher: &FixedState, id: Id) -> u64 {
    node_at(pages, id).map_or(0, |it| hasher.hash_one(&it.uid))
}
