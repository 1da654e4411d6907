//! Opening and closing an endpoint's outlets.

use fabric::{Error, Options, OutletId};

use super::NetEndpoint;
use crate::base::limits::OUTLET_DEPTH;
use crate::transport::ofi::wait_set::{add, remove};

impl NetEndpoint {
    /// Opens an outlet. `None`: that cannot be had now.
    pub(in crate::transport::ofi) fn open_outlet(&mut self) -> Option<OutletId> {
        let options = Options { depth: OUTLET_DEPTH, wait: self.wait.is_some() };
        let endpoint = self.endpoint.as_mut().filter(|_| !self.outlets_end)?;
        let opened = endpoint.open_outlet(&options);
        // Too many were left open: there will be no more.
        self.outlets_end = matches!(opened, Err(Error::OutletsLeft { .. }));
        let failed =
            |error: &Error| tracing::warn!(%error, "no endpoint for long copies, which go through buffers");
        let outlet = opened.inspect_err(failed).ok()?;
        self.outlets.push(outlet);
        if let Some(wait) = &self.wait {
            let fd = endpoint.outlet(outlet).ok().and_then(|outlet| add(wait, outlet.wait_fd()?).ok());
            if fd.is_none() {
                self.close_outlet(outlet, false);
                return None;
            }
        }
        Some(outlet)
    }

    /// Closes an outlet: callers' memory that was lent to it, if any `is_lent`, is touched no more.
    pub(in crate::transport::ofi) fn close_outlet(&mut self, outlet: OutletId, is_lent: bool) {
        #[cfg(test)]
        {
            self.script.swallow_outlets = self.script.swallow_outlets.saturating_sub(1);
        }
        let Some(endpoint) = &mut self.endpoint else { return };
        self.outlets.retain(|open| *open != outlet);
        if let (Some(wait), Ok(outlet)) = (&self.wait, endpoint.outlet(outlet)) {
            outlet.wait_fd().into_iter().for_each(|fd| remove(wait, fd));
        }
        let Err(error) = endpoint.close_outlet(outlet) else { return };
        if is_lent {
            // Whoever lent it memory has it back in a moment, and would find it written.
            tracing::error!(%error, "an endpoint cannot be closed that uses the program's memory");
            std::process::abort();
        }
        tracing::warn!(%error, "an endpoint for long copies cannot be closed, and stays");
    }
}
