//! How processes that somebody else's launcher started tell each other what they must know before they can
//! talk.
//!
//! | started by | found by | how |
//! |---|---|---|
//! | Open MPI's `mpirun`, Slurm's `srun --mpi=pmix` | `PMIX_NAMESPACE`, `PMIX_RANK` | [PMIx](pmix), whose library is the launcher's |
//! | MPICH's and Intel's `mpiexec` (hydra), `srun --mpi=pmi2` | `PMI_FD`, `PMI_RANK`, `PMI_SIZE` | [PMI](pmi) 1, or 2 where the launcher refuses that, over the connection that it left |
//! | torchrun, and scripts that do as it does | `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` | a [meeting](tcp_meeting) at rank 0, encrypted by the job's secret |
//!
//! No wait for others is longer than its deadline, and two seconds where PMIx has to be asked: what keeps
//! none by itself is called on [a thread of its own](crate::job::plumbing::blocking_call). To leave takes
//! five seconds more at most, where a launcher is silent.
//!
//! `STANDPIPE_LAUNCHER` names one, or `none`. Slurm is *untested on hardware*: `srun --mpi=pmi2` of Slurm
//! 22.05 was tried on one host, its PMIx with Open MPI's launcher.

mod common;
mod pmi;
mod pmix;
mod store;
mod tcp_meeting;

use std::time::Instant;

pub(crate) use self::common::Exchange;
pub use self::common::ExchangeError;
use self::common::Lookup;
pub use self::pmi::check_launcher_words;
use crate::base::environment::variable;
use crate::job::unlaunched::registry::PLACE;

/// The variable that names the launcher to believe.
const NAMED: &str = "STANDPIPE_LAUNCHER";

/// The exchange that this process's launcher offers; `None` where nobody does: it is a job of one. A launcher
/// that counts several processes and leaves them no way to meet is an error.
pub(crate) fn from_env(deadline: Instant) -> Result<Option<Box<dyn Exchange>>, ExchangeError> {
    let lookup = variable;
    let Some(launcher) = launcher(&lookup)? else { return Ok(None) };
    tracing::debug!(?launcher, "joining a job of another launcher's");
    let exchange: Box<dyn Exchange> = match launcher {
        Launcher::Pmix => Box::new(store::Stored::new(pmix::Pmix::init(deadline)?)),
        Launcher::Pmi(version) => Box::new(store::Stored::new(pmi::Pmi::init(version, &lookup, deadline)?)),
        Launcher::Rendezvous => {
            Box::new(tcp_meeting::TcpMeeting::meet(tcp_meeting::Meeting::from_env(&lookup)?, deadline)?)
        }
    };
    common::check_size(exchange.size())?;
    Ok(Some(exchange))
}

/// Names what started this process, for people, once its variables are well formed; `None`: nobody, or
/// `STANDPIPE_LAUNCHER=none`. This asks no launcher and waits for nobody.
///
/// # Errors
/// The error of [`Node::open`](crate::Node::open) about the variables. Whether the launcher answers only it
/// finds out.
pub fn launched_by() -> Result<Option<String>, ExchangeError> {
    let lookup = variable;
    let said = match launcher(&lookup)? {
        None => return Ok(None),
        Some(Launcher::Pmix) => "PMIx".to_owned(),
        Some(Launcher::Pmi(version)) => pmi::offered(version, &lookup)?,
        Some(Launcher::Rendezvous) => tcp_meeting::Meeting::from_env(&lookup)?.to_string(),
    };
    Ok(Some(said))
}

/// The launcher of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launcher {
    Pmix,
    Pmi(pmi::Version),
    Rendezvous,
}

fn launcher(lookup: Lookup<'_>) -> Result<Option<Launcher>, ExchangeError> {
    let has = |names: &[&str]| names.iter().all(|name| lookup(name).is_some());
    match lookup(NAMED).as_deref().map(str::trim) {
        None | Some("" | "auto") => {}
        Some("none") => return Ok(None),
        Some("pmix") => return Ok(Some(Launcher::Pmix)),
        Some("pmi1") => return Ok(Some(Launcher::Pmi(pmi::Version::One))),
        Some("pmi2") => return Ok(Some(Launcher::Pmi(pmi::Version::Two))),
        Some("env") => return Ok(Some(Launcher::Rendezvous)),
        Some(_) => {
            let expected = "auto, none, pmix, pmi1, pmi2 or env";
            return Err(ExchangeError::Environment { variable: NAMED.to_owned(), expected });
        }
    }
    // A launcher hands on the variables of the one that it was started by, but no connection of its.
    if has(&pmix::OFFERED) && !(has(&pmi::OFFERED) && pmi::is_connected(lookup)) {
        Ok(Some(Launcher::Pmix))
    } else if has(&pmi::OFFERED) {
        Ok(Some(Launcher::Pmi(pmi::Version::One)))
    } else if has(&tcp_meeting::OFFERED) {
        Ok(Some(Launcher::Rendezvous))
    } else {
        lonely(lookup).map_or(Ok(None), Err)
    }
}

/// The error of a process that a launcher counts among several, and that has no way to meet them. One whose
/// program meets others by name needs none.
fn lonely(lookup: Lookup<'_>) -> Option<ExchangeError> {
    if lookup(PLACE).is_some_and(|place| !place.trim().is_empty()) {
        return None;
    }
    tcp_meeting::incomplete(lookup).or_else(|| pmi::missing(lookup))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn found(vars: &[(&str, &str)]) -> Result<Option<Launcher>, ExchangeError> {
        launcher(&|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    const HYDRA: [(&str, &str); 3] = [("PMI_FD", "6"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")];
    const TORCH: [(&str, &str); 4] =
        [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "::1"), ("MASTER_PORT", "1")];
    const OPEN_MPI: [(&str, &str); 2] = [("PMIX_NAMESPACE", "7"), ("PMIX_RANK", "0")];

    #[test]
    fn launchers_are_known_by_what_they_leave() {
        let one = |vars: &[_]| found(vars).expect("nothing to misread");
        assert_eq!(one(&[]), None);
        assert_eq!(one(&HYDRA), Some(Launcher::Pmi(pmi::Version::One)));
        assert_eq!(one(&TORCH), Some(Launcher::Rendezvous));
        assert_eq!(one(&OPEN_MPI), Some(Launcher::Pmix));
        // Half of what a launcher leaves is somebody else's.
        assert_eq!(one(&HYDRA[..2]), None);
        assert_eq!(one(&TORCH[1..]), None);
        // Inside an allocation every `mpiexec` passes Slurm's variables on, and need not speak PMI 2. Slurm
        // itself speaks both.
        assert_eq!(
            one(&[&HYDRA[..], &[("SLURM_STEP_ID", "0")]].concat()),
            Some(Launcher::Pmi(pmi::Version::One))
        );
    }

    #[test]
    fn of_two_launchers_the_one_that_was_started_by_the_other_is_believed() {
        let both = |number: i32| {
            let number = number.to_string();
            let fd = ("PMI_FD", number.as_str());
            found(&[&[fd], &HYDRA[1..], &OPEN_MPI[..]].concat()).expect("nothing to misread")
        };
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        // A socket of the program's own has got the number.
        assert_eq!(both(ours.as_raw_fd()), Some(Launcher::Pmix));
        rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::empty()).expect("it is open");
        // Hydra in a shell that Slurm has started by PMIx, and Open MPI in one of hydra's or of Slurm's.
        assert_eq!(both(ours.as_raw_fd()), Some(Launcher::Pmi(pmi::Version::One)));
        assert_eq!(both(i32::MAX), Some(Launcher::Pmix));
    }

    #[test]
    fn processes_of_one_job_that_cannot_meet_are_not_as_many_jobs_of_one() {
        let torch = |without: &str, size| {
            let with_size = |(name, value)| (name, if name == "WORLD_SIZE" { size } else { value });
            let left: Vec<_> =
                TORCH.into_iter().filter(|(name, _)| *name != without).map(with_size).collect();
            found(&left)
        };
        for name in ["MASTER_ADDR", "MASTER_PORT"] {
            let said = torch(name, "2").expect_err("two that cannot meet");
            assert!(
                matches!(said, ExchangeError::Incomplete { size: 2, missing } if missing == name),
                "{said}"
            );
            for alone in ["1", "0", "", "two"] {
                assert_eq!(torch(name, alone).expect("nobody to meet"), None);
            }
        }
        let step = |tasks| [("SLURM_STEP_NUM_TASKS", tasks), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")];
        let said = found(&step("2")).expect_err("two that cannot meet");
        assert!(matches!(said, ExchangeError::NoPmi { size: 2 }), "{said}");
        assert_eq!(found(&step("1")).expect("nobody to meet"), None);
        // A batch script is no step of srun's, and a shell of srun's starts what it starts by itself.
        assert_eq!(found(&step("2")[1..]).expect("nobody to meet"), None);
        let shell = [&step("2")[..], &[("SLURM_PTY_PORT", "1")]].concat();
        assert_eq!(found(&shell).expect("nobody to meet"), None);
        // They meet by name.
        let named = [&step("2")[..], &[(PLACE, "a:1")]].concat();
        assert_eq!(found(&named).expect("others to meet"), None);
        let chosen = found(&[&step("2")[..], &TORCH[..2]].concat()).expect_err("two that cannot meet");
        assert!(matches!(chosen, ExchangeError::Incomplete { .. }), "{chosen}");
        assert_eq!(found(&[&step("2")[..], &TORCH].concat()).expect("all"), Some(Launcher::Rendezvous));
        assert_eq!(found(&[&step("2")[..], &[(NAMED, "none")]].concat()).expect("a name"), None);
    }

    #[test]
    fn whoever_is_named_is_believed() {
        let one = |name| found(&[&HYDRA[..], &[(NAMED, name)]].concat());
        assert_eq!(one("none").expect("a name"), None);
        assert_eq!(one("pmi2").expect("a name"), Some(Launcher::Pmi(pmi::Version::Two)));
        assert_eq!(one("auto").expect("a name"), Some(Launcher::Pmi(pmi::Version::One)));
        assert!(matches!(one("mpi"), Err(ExchangeError::Environment { variable, .. }) if variable == NAMED));
    }
}
