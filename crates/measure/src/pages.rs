//! What a command prints about itself: completions and manual pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Subcommand};
use clap_complete::Shell;

use crate::stdout::print;

/// Prints completions and manual pages.
#[derive(Debug, Subcommand)]
pub enum Pages {
    /// Print what a shell needs to complete this command's words
    ///
    /// For bash, write it into ~/.local/share/bash-completion/completions, under this command's name. For
    /// zsh, write it into a folder of $fpath, with a _ before the name. For fish, write it into
    /// ~/.config/fish/completions, with .fish behind the name.
    Completions {
        /// Whose completions
        shell: Shell,
    },
    /// Print the manual page, or write those of all subcommands
    ///
    /// To read it: pipe it into man -l -. To install all pages: --out ~/.local/share/man/man1
    Man {
        /// Write all pages to this folder, which is made if it is not there
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
}

impl Pages {
    /// Prints or writes what is asked of the command `C`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn run<C: CommandFactory>(self) -> Result<ExitCode> {
        let mut text = Vec::new();
        match self {
            Self::Completions { shell } => {
                let mut command = C::command();
                let name = command.get_name().to_owned();
                clap_complete::generate(shell, &mut command, name, &mut text);
            }
            Self::Man { out: None } => clap_mangen::Man::new(C::command()).render(&mut text)?,
            Self::Man { out: Some(folder) } => {
                write_pages::<C>(&folder)?;
                return Ok(ExitCode::SUCCESS);
            }
        }
        print(String::from_utf8_lossy(&text).trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the manual pages of all subcommands.
fn write_pages<C: CommandFactory>(folder: &Path) -> Result<()> {
    let failed = || format!("cannot write manual pages to {}", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(C::command(), folder).with_context(failed)
}
