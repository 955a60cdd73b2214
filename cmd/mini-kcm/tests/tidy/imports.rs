//! What the source files of a crate import, and which file a path leads to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{
    Attribute, ExprAsync, ExprAwait, File, Item, ItemUse, Signature, UseTree,
    visit::{self, Visit},
};

use super::collect_sources;

/// The code of a file outside its tests.
#[derive(Default)]
pub(crate) struct Code {
    /// The paths of imports, and all other paths with two or more names; `super` and `self` are resolved.
    pub(crate) paths: BTreeSet<String>,
    /// It contains an async function or block, or waits for a future.
    pub(crate) is_async: bool,
    /// The module of the file, as `rules::plan`; empty for the root of the crate.
    module: String,
}

/// A crate: its files by their modules. Modules that only tests use are left out.
pub(crate) struct Crate(BTreeMap<String, PathBuf>);

impl Crate {
    /// Reads the folder `src` of a crate.
    pub(crate) fn read(src: &Path) -> Self {
        let mut files = Vec::new();
        collect_sources(src, &mut files);
        let modules = files.into_iter().filter_map(|file| Some((module(file.strip_prefix(src).ok()?)?, file)));
        Self(modules.collect())
    }

    /// The files with their modules and their code.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, Code)> {
        self.0.iter().map(|(module, file)| (file.as_path(), Code::read(file, module)))
    }

    /// The pairs of files that import each other. A parent may name its children, and a child its parents.
    pub(crate) fn circles(&self) -> Vec<String> {
        let imports: BTreeMap<&str, BTreeSet<&str>> =
            self.0.iter().map(|(module, file)| (module.as_str(), self.imported(module, file))).collect();
        let is_parent = |a: &str, b: &str| a.is_empty() || b.starts_with(&format!("{a}::"));
        let mut found = Vec::new();
        for (a, imported) in &imports {
            for b in imported.iter().filter(|b| a < *b && imports[*b].contains(a)) {
                if !is_parent(a, b) && !is_parent(b, a) {
                    found.push(format!("{a} and {b} import each other"));
                }
            }
        }
        found
    }

    /// The modules of this crate that a file imports.
    fn imported(&self, module: &str, file: &Path) -> BTreeSet<&str> {
        let paths = Code::read(file, module).paths;
        let of_crate = paths.iter().filter_map(|it| it.strip_prefix("crate::"));
        of_crate.filter_map(|it| self.module_of(it)).filter(|it| *it != module).collect()
    }

    /// The longest part of a path that is a file.
    fn module_of(&self, path: &str) -> Option<&str> {
        let mut part = path;
        loop {
            if let Some((module, _)) = self.0.get_key_value(part) {
                return Some(module);
            }
            part = part.rsplit_once("::")?.0;
        }
    }
}

/// `rules/plan.rs` is `rules::plan`; `None` for files that only tests use.
fn module(file: &Path) -> Option<String> {
    let names: Vec<&str> = file.to_str()?.trim_end_matches(".rs").split('/').collect();
    if names.iter().any(|it| matches!(*it, "tests" | "testing" | "fixture")) {
        return None;
    }
    let names = match *names {
        ["lib" | "main"] => &[],
        [.., "mod"] => &names[..names.len() - 1],
        _ => &names[..],
    };
    Some(names.join("::"))
}

impl Code {
    /// Parses a file.
    fn read(file: &Path, module: &str) -> Self {
        let text = fs::read_to_string(file).unwrap();
        let file: File = syn::parse_file(&text).unwrap_or_else(|err| panic!("{}: {err}", file.display()));
        let mut code = Self { module: module.to_owned(), ..Self::default() };
        code.visit_file(&file);
        code
    }

    fn add(&mut self, names: &[String]) {
        if let [first, _, ..] = names {
            let mut rest = names;
            let mut base: Vec<&str> = self.module.split("::").filter(|it| !it.is_empty()).collect();
            while let [name, others @ ..] = rest
                && matches!(name.as_str(), "self" | "super")
            {
                if name == "super" {
                    base.pop();
                }
                rest = others;
            }
            let path = rest.join("::");
            let is_relative = matches!(first.as_str(), "self" | "super");
            self.paths.insert(match is_relative {
                true if base.is_empty() => format!("crate::{path}"),
                true => format!("crate::{}::{path}", base.join("::")),
                false => path,
            });
        }
    }

    fn add_tree(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|it| self.add_tree(before, it)),
            UseTree::Name(name) if name.ident == "self" => self.add(before),
            UseTree::Name(name) => self.add(&[before.as_slice(), &[name.ident.to_string()]].concat()),
            UseTree::Rename(rename) => self.add(&[before.as_slice(), &[rename.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.add(&[before.as_slice(), &["*".to_owned()]].concat()),
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        it.path().is_ident("cfg") && it.parse_args::<syn::Ident>().is_ok_and(|configuration| configuration == "test")
    })
}

impl<'ast> Visit<'ast> for Code {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(it) => &it.attrs,
            Item::Fn(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Const(it) => &it.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.add(&names);
        visit::visit_path(self, path);
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        self.is_async |= signature.asyncness.is_some();
        visit::visit_signature(self, signature);
    }

    fn visit_expr_await(&mut self, expr: &'ast ExprAwait) {
        self.is_async = true;
        visit::visit_expr_await(self, expr);
    }

    fn visit_expr_async(&mut self, expr: &'ast ExprAsync) {
        self.is_async = true;
        visit::visit_expr_async(self, expr);
    }
}
