//! Opening and closing an endpoint's auxiliary endpoints.

use fabric::{AuxEndpointId, Error, Options};

use super::NetEndpoint;
use crate::base::limits::AUX_ENDPOINT_DEPTH;
use crate::transport::ofi::wait_set::{add, remove};

impl NetEndpoint {
    /// Opens an auxiliary endpoint. `None`: that cannot be had now.
    pub(in crate::transport::ofi) fn open_aux_endpoint(&mut self) -> Option<AuxEndpointId> {
        let options = Options { depth: AUX_ENDPOINT_DEPTH, wait: self.wait.is_some() };
        let endpoint = self.endpoint.as_mut().filter(|_| !self.aux_endpoints_end)?;
        let opened = endpoint.open_aux_endpoint(&options);
        // Too many were left open: there will be no more.
        self.aux_endpoints_end = matches!(opened, Err(Error::AuxEndpointsLeft { .. }));
        let failed =
            |error: &Error| tracing::warn!(%error, "no endpoint for long copies, which go through buffers");
        let aux_endpoint = opened.inspect_err(failed).ok()?;
        self.aux_endpoints.push(aux_endpoint);
        if let Some(wait) = &self.wait {
            let fd = endpoint
                .aux_endpoint(aux_endpoint)
                .ok()
                .and_then(|aux_endpoint| add(wait, aux_endpoint.wait_fd()?).ok());
            if fd.is_none() {
                self.close_aux_endpoint(aux_endpoint, false);
                return None;
            }
        }
        Some(aux_endpoint)
    }

    /// The address by which peers write by an auxiliary endpoint.
    pub(in crate::transport::ofi) fn aux_address(
        &mut self,
        aux_endpoint: AuxEndpointId,
    ) -> Option<Box<[u8]>> {
        let address = self.endpoint.as_mut()?.aux_endpoint(aux_endpoint).and_then(|it| it.address());
        address.inspect_err(|error| tracing::debug!(%error, "an endpoint has no address")).ok()
    }

    /// Whether closing an auxiliary endpoint now would leave it to the process for good.
    pub(in crate::transport::ofi) fn stays_open(&self, aux_endpoint: AuxEndpointId) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| endpoint.cannot_close_aux_endpoint(aux_endpoint))
    }

    /// Closes an auxiliary endpoint: callers' memory that was lent to it, if any `is_lent`, is touched no
    /// more, and nothing comes in by it. `false`: it stays.
    pub(in crate::transport::ofi) fn close_aux_endpoint(
        &mut self,
        aux_endpoint: AuxEndpointId,
        is_lent: bool,
    ) -> bool {
        #[cfg(test)]
        {
            self.script.swallow_aux_endpoints = self.script.swallow_aux_endpoints.saturating_sub(1);
        }
        let Some(endpoint) = &mut self.endpoint else { return true };
        self.aux_endpoints.retain(|open| *open != aux_endpoint);
        if let (Some(wait), Ok(aux_endpoint)) = (&self.wait, endpoint.aux_endpoint(aux_endpoint)) {
            aux_endpoint.wait_fd().into_iter().for_each(|fd| remove(wait, fd));
        }
        let Err(error) = endpoint.close_aux_endpoint(aux_endpoint) else { return true };
        if is_lent {
            // The caller that lent it memory has it back in a moment, and would find it written.
            tracing::error!(%error, "an endpoint cannot be closed that uses the program's memory");
            std::process::abort();
        }
        tracing::warn!(%error, "an endpoint for long copies cannot be closed, and stays");
        false
    }
}
