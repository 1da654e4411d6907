//! Which transport a command's processes use, and what they register: options, and the settings that tell
//! ranks of them.

use anyhow::{Result, anyhow};
use clap::Args;
use standpipe::host::variable;
use standpipe::{Strategy, Transport, launch::Launch, network};

use crate::usage_error::UsageError;

/// The setting by which ranks are told their transport.
pub const TRANSPORT: &str = "STANDPIPE_TRANSPORT";

/// The setting by which ranks are told what to register.
pub const STRATEGY: &str = "STANDPIPE_STRATEGY";

/// The transport of this name.
///
/// # Errors
/// What names there are.
pub fn parse(name: &str) -> Result<Transport, String> {
    Transport::parse(name).ok_or_else(|| "it is shm, ofi or ofi:PROVIDER".to_owned())
}

/// The transport that an option names, or else the environment; shared memory where neither does.
///
/// # Errors
/// If the environment names none that there is.
pub fn chosen(option: Option<&Transport>) -> Result<Transport> {
    option.map_or_else(|| from_env(variable(TRANSPORT).as_deref()), |transport| Ok(transport.clone()))
}

/// Refuses a transport that is not there. To be asked once the arguments are known to fit together: what is
/// wrong with them is said whatever is installed.
///
/// # Errors
/// If there is no libfabric, or it has no such provider.
pub fn look_for(transport: &Transport) -> Result<(), UsageError> {
    match transport {
        Transport::Ofi { provider } => network::look_for(provider.as_deref()).map_err(UsageError::new),
        _ => Ok(()),
    }
}

/// Refuses a provider that libfabric has not, as [`look_for`] does. Where there is no libfabric this says
/// nothing: what is wrong with arguments is said whatever is installed.
///
/// # Errors
/// If libfabric has no such provider, or it cannot be used here.
pub fn refuse_unknown(transport: &Transport) -> Result<(), UsageError> {
    let Transport::Ofi { provider } = transport else { return Ok(()) };
    match network::look_for(provider.as_deref()) {
        Ok(()) | Err(network::NetworkError::Library(_)) => Ok(()),
        Err(error) => Err(UsageError::new(error)),
    }
}

fn from_env(name: Option<&str>) -> Result<Transport> {
    let Some(name) = name else { return Ok(Transport::default()) };
    parse(name.trim()).map_err(|wanted| anyhow!("{TRANSPORT}={name}: {wanted}"))
}

/// How ranks of a study reach each other, as a user says it.
#[derive(Debug, Clone, Default, Args)]
pub struct TransportArgs {
    /// How the processes reach each other: shm, ofi or ofi:PROVIDER, such as ofi:tcp. Without it, as
    /// STANDPIPE_TRANSPORT says
    #[arg(long, value_name = "NAME", value_parser = parse)]
    transport: Option<Transport>,
    /// Over ofi, how private memory is registered: bounce (never), firehose, pin-down, rendezvous-unpin,
    /// rendezvous-no-unpin or pin-everything. Without it, as STANDPIPE_STRATEGY says, or else bounce
    #[arg(long, value_name = "NAME", value_parser = parse_strategy)]
    strategy: Option<Strategy>,
}

/// How ranks reach each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// By what.
    pub transport: Transport,
    /// What they register over a network; `None` where there is none.
    pub strategy: Option<Strategy>,
}

impl TransportArgs {
    /// Whether an option names a transport.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.transport.is_some()
    }

    /// What these options and the environment choose.
    ///
    /// # Errors
    /// If they name what cannot be, or a strategy where nothing is ever registered. Whether the transport is
    /// there says [`look_for`].
    pub fn choose(&self) -> Result<Chosen, UsageError> {
        let transport = chosen(self.transport.as_ref()).map_err(UsageError::new)?;
        if transport == Transport::Shm {
            return match self.strategy {
                None => Ok(Chosen::default()),
                Some(strategy) => Err(UsageError::new(format_args!(
                    "--strategy {} is for --transport ofi: shared memory registers nothing",
                    strategy.name()
                ))),
            };
        }
        let strategy = match self.strategy {
            Some(strategy) => strategy,
            None => strategy_from_env(variable(STRATEGY).as_deref()).map_err(UsageError::new)?,
        };
        Ok(Chosen { transport, strategy: Some(strategy) })
    }
}

impl Chosen {
    /// Tells a job's ranks.
    #[must_use]
    pub fn tell(&self, job: Launch) -> Launch {
        self.settings().into_iter().fold(job, |job, (name, value)| job.env(name, value))
    }

    /// The settings that tell processes of it: names and values.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let strategy = self.strategy.map(|strategy| (STRATEGY, strategy.name().to_owned()));
        [(TRANSPORT, self.transport.to_string())].into_iter().chain(strategy).collect()
    }

    /// The options that choose this, for a command line that repeats a run.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let Some(strategy) = self.strategy else { return Vec::new() };
        // A provider's name may have a semicolon.
        let transport = self.transport.to_string();
        let transport = if transport.contains(';') { format!("'{transport}'") } else { transport };
        vec!["--transport".to_owned(), transport, "--strategy".to_owned(), strategy.name().to_owned()]
    }
}

impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.strategy {
            None => f.write_str("shared memory"),
            Some(strategy) => write!(f, "libfabric ({}), {}", self.transport, strategy.name()),
        }
    }
}

fn parse_strategy(name: &str) -> Result<Strategy, String> {
    let known = || Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::Hardware);
    known()
        .find(|strategy| strategy.name() == name)
        .ok_or_else(|| format!("it is one of {}", known().map(Strategy::name).collect::<Vec<_>>().join(", ")))
}

fn strategy_from_env(name: Option<&str>) -> Result<Strategy> {
    let Some(name) = name.map(str::trim).filter(|name| !name.is_empty()) else { return Ok(Strategy::Bounce) };
    parse_strategy(name).map_err(|wanted| anyhow!("{STRATEGY}={name}: {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        assert_eq!(from_env(None).expect("none named"), Transport::Shm);
        assert!(from_env(Some("pigeon")).expect_err("no transport").to_string().contains("pigeon"));
        assert_eq!(strategy_from_env(None).expect("none named"), Strategy::Bounce);
        assert!(strategy_from_env(Some("hope")).expect_err("no strategy").to_string().contains("hope"));
        assert!(parse_strategy("hardware").is_err(), "no network reaches memory without keys");
    }

    #[test]
    fn a_provider_that_is_not_there_is_refused_by_name() {
        let pigeon = Transport::Ofi { provider: Some("pigeon".to_owned()) };
        let refused = look_for(&pigeon).expect_err("libfabric has none").to_string();
        assert!(refused.contains("provider pigeon") || refused.contains("libfabric cannot"), "{refused}");
    }

    #[test]
    fn a_strategy_wants_a_network() {
        let args =
            |transport| TransportArgs { transport: Some(transport), strategy: Some(Strategy::PinDown) };
        let refused = args(Transport::Shm).choose().expect_err("nothing is registered");
        assert!(refused.to_string().contains("--strategy pin-down"), "{refused}");
        let transport = Transport::Ofi { provider: Some("verbs;ofi_rxm".to_owned()) };
        let words = Chosen { transport, strategy: Some(Strategy::PinDown) }.words();
        assert_eq!(words, ["--transport", "'ofi:verbs;ofi_rxm'", "--strategy", "pin-down"]);
        assert!(Chosen::default().words().is_empty());
    }
}
