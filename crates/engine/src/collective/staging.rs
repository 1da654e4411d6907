//! Plans whose members give what they give out of memory that others reach easily.

use std::collections::HashMap;

use super::EAGER_MAX;
use super::plan::{Memory, Plan, Span, Step};

impl Plan {
    /// As [`Collective::staged_plan`](super::Collective::staged_plan) says.
    pub(super) fn staged(&self, hidden: impl Fn(Memory) -> bool) -> Option<Plan> {
        assert!(!hidden(Memory::Scratch), "others reach scratch memory");
        let is_combined = self.steps.iter().any(|step| matches!(step, Step::Fold { .. }));
        let mut times: HashMap<Span, u32> = HashMap::new();
        for step in &self.steps {
            if let Step::Send { from, .. } = step {
                *times.entry(*from).or_default() += 1;
            }
        }
        let pays =
            |given: Span| given.len > EAGER_MAX && hidden(given.memory) && (is_combined || times[&given] > 1);
        let mut plan = Plan { steps: Vec::with_capacity(self.steps.len()), ..*self };
        // Where a span has been copied to since the last wait, until which it stays as it is, and the end of
        // these places.
        let (mut places, mut end) = (HashMap::<Span, Span>::new(), self.scratch);
        for step in &self.steps {
            match *step {
                Step::Send { to, tag, from, of } if pays(from) => {
                    let place = *places.entry(from).or_insert_with(|| {
                        let place = Span { memory: Memory::Scratch, at: end, len: from.len };
                        end += from.len;
                        plan.copy(from, place);
                        place
                    });
                    plan.steps.push(Step::Send { to, tag, from: place, of });
                    plan.scratch = plan.scratch.max(end);
                }
                step => {
                    if step == Step::Wait {
                        // Sent data has been gotten.
                        places.clear();
                        end = self.scratch;
                    }
                    plan.steps.push(step);
                }
            }
        }
        let is_used = plan.steps.iter().any(|step| match step {
            Step::Send { from, .. } => from.memory == Memory::Scratch && from.len > EAGER_MAX,
            _ => false,
        });
        is_used.then_some(plan)
    }
}
