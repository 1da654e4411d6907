//! The node's dealings with its registration table and the transport that registers for it.

use super::state::Waiter;
use crate::node::Node;
use crate::registration::table::Action;
use crate::registration::{Key, RegId, RegisterError};
use crate::wire::Message;
use crate::{Deregistering, Lane, Registering, Transport};

impl<T: Transport> Node<T> {
    /// Does what the registration table wants done, and goes on with the transfers that waited for it, until
    /// neither leaves anything to the other. Called from within, it leaves that to the call under way.
    pub(in crate::node) fn run_actions(&mut self) {
        self.actions_due = true;
        if std::mem::replace(&mut self.acting, true) {
            return;
        }
        while std::mem::take(&mut self.actions_due) {
            while let Some(action) =
                self.registration.as_mut().and_then(|registration| registration.table.next_action())
            {
                self.act(action);
            }
            while let Some(key) = self.ready.pop_front() {
                self.advance(key);
            }
        }
        self.acting = false;
    }

    fn act(&mut self, action: Action) {
        let Some(registration) = &mut self.registration else { return };
        match action {
            Action::Register(reg, run) => {
                let shift = registration.settings.bucket.bytes().trailing_zeros();
                self.register(reg, run.first << shift, u64::from(run.count) << shift);
            }
            Action::RegisterGranted(reg, start, len) => self.register(reg, start, len),
            Action::Deregister(reg) => match self.core.transport.deregister(reg) {
                Deregistering::Done => registration.table.deregistered(reg),
                Deregistering::Refused => registration.table.not_deregistered(reg),
                Deregistering::Pending => {}
            },
            Action::Settled(reg) => self.on_settled(reg),
            Action::Revoke(peer, holder) => {
                registration.revocations.add(peer, holder);
                registration.wants_time = true;
                // Until it is given back, each transfer is to be looked at.
                registration.hoses.forget_recent();
                self.note_revocations();
                self.mail.post(
                    &mut self.core,
                    peer,
                    Lane::Request,
                    Message::Revoke { holder: Some(holder) },
                    &[],
                );
            }
            Action::Recall(peer, bytes) => {
                registration.recall(peer, bytes);
                self.mail.post(&mut self.core, peer, Lane::Request, Message::Recall { bytes }, &[]);
            }
        }
    }

    fn register(&mut self, reg: RegId, start: u64, len: u64) {
        let Some(registration) = &mut self.registration else { return };
        match self.core.transport.register(reg, start, len) {
            Registering::Done(key) => registration.table.registered(reg, Ok(key)),
            Registering::Once(key) => registration.table.registered_once(reg, key),
            Registering::Failed(error) => registration.table.registered(reg, Err(error)),
            Registering::Pending => {}
        }
    }

    pub(in crate::node) fn on_registered(&mut self, reg: RegId, result: Result<Key, RegisterError>) {
        let Some(registration) = &mut self.registration else { return };
        registration.table.registered(reg, result);
        self.run_actions();
    }

    pub(in crate::node) fn on_deregistered(&mut self, reg: RegId) {
        let Some(registration) = &mut self.registration else { return };
        registration.table.deregistered(reg);
        self.run_actions();
    }

    /// Rights were revoked or given back: while any is out, messages are held back.
    pub(in crate::node) fn note_revocations(&mut self) {
        let are_out = self.registration.as_ref().is_some_and(|r| r.revocations.are_out());
        self.mail.hold_back(are_out);
    }

    /// A registration is ready, or has failed: whoever waits for it goes on.
    fn on_settled(&mut self, reg: RegId) {
        let Some(registration) = &mut self.registration else { return };
        for waiter in registration.waiting.remove(&reg).unwrap_or_default() {
            match waiter {
                Waiter::Op(key) => self.ready.push_back(key),
                Waiter::Serve(serve) => self.on_served(serve),
            }
        }
    }
}
