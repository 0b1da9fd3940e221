//! Policies of tiering: Robinhood's text, its conditions and triggers, and the choice of what is done (design note 033).
//!
//! Everything here is pure: text and facts come in, decisions go out. `brindle-hsm` scans the MDT and carries them out.
//!
//! | file | what it holds |
//! |---|---|
//! | [`lex`], [`tree`] | text to words, words to blocks; includes and variables |
//! | [`values`] | durations, sizes, percentages, booleans as Robinhood has them |
//! | [`condition`] | criteria and what they say of an entry: yes, no, or not known |
//! | [`program`] | blocks to classes, policies, rules and triggers; what is unknown is refused |
//! | [`trigger`] | when a policy runs, and how much it is to do |
//! | [`plan`] | which entries, in which order, and why not the others |
//! | [`filter`] | the part of a condition that the MDT compares itself |
//! | [`versions`] | keeping the newest versions of checkpoints |
//!
//! Invariant: an unknown criterion is refused, and a fact that is not known never makes a policy act.
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

pub mod condition;
pub mod entry;
pub mod filter;
pub mod glob;
pub mod lex;
pub mod plan;
pub mod program;
pub mod tree;
pub mod trigger;
pub mod values;
pub mod versions;

pub use condition::Condition;
pub use entry::{Entry, Names};
pub use lex::{Pos, Source};
pub use plan::{Plan, Verdict};
pub use program::{Action, Policy, Program};
