//! One node for all libraries of a process.

use std::sync::Arc;

use crate::api::config::{Config, SETTINGS};
use crate::api::node::Node;
use crate::api::open::{OpenError, open};
use crate::base::handler_scope;
use crate::runtime::shared::{NoShare, OF_PROCESS};
use crate::transport::peers::CLIENTS;

/// Settings that are each client's own.
const OWN: [&str; 1] = ["STANDPIPE_TIMEOUT_MS"];

/// The configuration that the process's node was opened with.
static FIRST: std::sync::Mutex<Option<Config>> = std::sync::Mutex::new(None);

impl Node {
    /// A new client of this process's node, which the first call opens, as [`Node::open`] does: for libraries
    /// that know nothing of each other. Each client has its own [handlers](Node::register), its own
    /// [`Node::quiet`] and failures, and ends by itself: by [`Node::close`], or with the last of its handles.
    /// The node closes with the last client. In a launched job it then has left that: another node that is
    /// opened meets those that others open anew.
    ///
    /// The first configuration counts. A later one may leave settings unset; what it sets must be as it is.
    /// Only the timeout is each client's own. Its handlers are registered for the client.
    ///
    /// # Errors
    /// [`OpenError::Conflict`], which names the setting and both values. [`OpenError::Clients`] beyond 256 at
    /// a time. [`OpenError::Handler`]. [`OpenError::Forked`] in a child made by `fork` by a process that has
    /// called this. [`OpenError::InHandler`] where it would wait, in a handler, for another thread to open or
    /// close the node. At the first call, what [`Node::open`] says.
    pub fn shared(config: Config) -> Result<Node, OpenError> {
        let may_wait = handler_scope::may_wait("sharing a node", vm::forks::generation()).is_ok();
        let own = config.clone();
        let shared = OF_PROCESS.share(may_wait, || {
            let life = open(own.clone())?;
            // Its handlers are the node's.
            *crate::base::lock::lock(&FIRST) = Some(Config { handlers: Default::default(), ..own });
            Ok(life)
        });
        let (share, is_first) = shared.map_err(|why| match why {
            NoShare::Forked => OpenError::Forked,
            NoShare::InHandler => OpenError::InHandler,
            NoShare::Full => OpenError::Clients { most: CLIENTS as u64 },
            NoShare::NotOpened(error) => error,
        })?;
        let node = Node::new(share, config.timeout);
        if !is_first {
            // A refusal drops this client.
            check(&config)?;
            for (name, handler) in config.handlers.iter() {
                node.add_handler(("", name), Arc::clone(handler)).map_err(OpenError::Handler)?;
            }
        }
        Ok(node)
    }
}

/// Refuses settings that the node was opened without, or with other values.
fn check(given: &Config) -> Result<(), OpenError> {
    let first = crate::base::lock::lock(&FIRST);
    let Some(first) = &*first else { return Ok(()) };
    let unset = Config::new();
    let conflict = SETTINGS.iter().filter(|setting| !OWN.contains(&setting.name)).find_map(|setting| {
        let (first, given) = (setting.shown(first), setting.shown(given));
        let conflicts = given != setting.shown(&unset) && given != first;
        let shown = |value: Option<String>| value.unwrap_or_else(|| "unset".to_owned());
        conflicts.then(|| OpenError::Conflict {
            setting: setting.name,
            first: shown(first),
            given: shown(given),
        })
    });
    conflict.map_or(Ok(()), Err)
}
