//! Several electors on one Lease under random faults: never two terms at the same time, and always one after the faults
//! end.

use crate::support::{Mode, Process, Server, epoch, secs, sleep};
use fastrand::Rng;
use leader_election::Notes;

/// The duration of the faults, in steps of 50 ms.
const STEPS: u32 = 12_000;

struct Race {
    server: Server,
    rng: Rng,
    /// All processes that have run. Those that ended keep their term for the checks.
    running: Vec<Process>,
    ended: Vec<client::Term>,
    started: u32,
    handed_over: u32,
}

impl Race {
    fn new(seed: u64) -> Self {
        let mut race = Self {
            server: Server::new(),
            rng: Rng::with_seed(seed),
            running: vec![],
            ended: vec![],
            started: 0,
            handed_over: 0,
        };
        for _ in 0..3 {
            race.start();
        }
        race
    }

    fn start(&mut self) {
        self.started += 1;
        let name = format!("p{}", self.started);
        let link = self.server.link(&name);
        if self.rng.u8(..4) == 0 {
            link.forbid_watch();
        }
        // The clocks differ by up to a day.
        let wall = epoch() + secs(self.rng.f64() * 86_400.0);
        let seed = self.rng.u64(..);
        self.running.push(Process::start_at(&self.server, &name, seed, wall, link));
    }

    /// At most one term is valid at any moment.
    fn check(&self, seed: u64) {
        let running = self.running.iter().map(|it| &it.term);
        let valid = running.chain(&self.ended).filter(|it| it.is_valid()).count();
        assert!(valid <= 1, "seed {seed} at {:?}: {valid} leaders", self.server.elapsed());
    }

    async fn fault(&mut self) {
        let at = self.rng.usize(..self.running.len());
        match self.rng.u8(..16) {
            0..8 => {
                let modes = [Mode::Up, Mode::Up, Mode::Hang, Mode::Broken, Mode::LosesResponses];
                let mode = modes[self.rng.usize(..modes.len())];
                self.running[at].link.set(mode);
            }
            8 => {
                // Only its own clock advances. So only a leader is suspended: it then observes that its term is over.
                let it = &self.running[at];
                if it.term.is_valid() {
                    it.clock.suspend(secs(self.rng.f64() * 30.0));
                }
            }
            9 => {
                // A crash: a request in flight may still arrive, but the term ends with the process.
                let it = self.running.swap_remove(at);
                it.term.end();
                self.ended.push(it.term.clone());
                drop(it);
                self.start();
            }
            10 | 11 => {
                let it = self.running.swap_remove(at);
                self.ended.push(it.term.clone());
                self.handed_over += u32::from(it.term.is_valid());
                // Even if the release fails, another process may lead only after the term is over.
                let _ = it.elector.release(Some(Notes::default())).await;
                self.start();
            }
            12 => self.server.edit(|it| it["metadata"]["labels"] = serde_json::json!({ "by": "hand" })),
            _ => {}
        }
    }

    /// Ends the processes that have lost the Lease, as the manager does, and starts new ones.
    async fn restart_losers(&mut self) {
        for at in (0..self.running.len()).rev() {
            let signals = self.running[at].signals(0.0).await;
            if signals.iter().any(|it| matches!(it, leader_election::Signal::Lost(_))) {
                let it = self.running.swap_remove(at);
                assert!(!it.term.is_valid());
                self.ended.push(it.term.clone());
                drop(it);
                self.start();
            }
        }
    }
}

async fn run(seed: u64) -> (u32, i64) {
    let mut race = Race::new(seed);
    for _ in 0..STEPS {
        sleep(0.05).await;
        race.check(seed);
        if race.rng.u8(..40) == 0 {
            race.fault().await;
        }
        race.restart_losers().await;
        race.check(seed);
    }
    for it in &race.running {
        it.link.set(Mode::Up);
    }
    // The longest lease, the longest wait for an attempt, and one or two requests without a response.
    for _ in 0..800 {
        sleep(0.05).await;
        race.restart_losers().await;
        race.check(seed);
    }
    let leaders = race.running.iter().filter(|it| it.term.is_valid()).count();
    assert_eq!(leaders, 1, "seed {seed}: not exactly one leader after the faults");
    (race.handed_over, race.server.transitions())
}

#[tokio::test(start_paused = true)]
async fn terms_never_overlap_and_one_process_leads_at_the_end() {
    let mut total = (0, 0);
    for seed in seeds() {
        let (handed_over, transitions) = run(seed).await;
        total = (total.0 + handed_over, total.1 + transitions);
    }
    // A single seed may have few faults.
    let moved = total.0 > 5 && total.1 > 50;
    assert!(moved || seeds().len() == 1, "too few changes of the leader: {total:?}");
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_give_equal_runs() {
    assert_eq!(run(7).await, run(7).await);
}

/// Eight seeds, or the one in `SEED`.
fn seeds() -> Vec<u64> {
    match std::env::var("SEED").ok().and_then(|it| it.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..8).collect(),
    }
}
