//! A real terminal that nobody sits at: tmux types, and tells what is on the screen.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::journal::wait_until;
use crate::namespace::Namespace;

/// What the shell of a terminal says when it waits for a command.
pub const PROMPT: &str = "ready>";
/// A program starts, asks and draws within this time, on a busy machine too.
const SCREEN_DEADLINE: Duration = Duration::from_secs(60);

/// A terminal with a shell in it. Dropping it hangs up.
pub struct Terminal {
    socket: String,
    home: tempfile::TempDir,
}

impl Terminal {
    /// Opens one of this size in a namespace, with a shell that waits.
    ///
    /// # Errors
    /// If tmux is not installed, or no prompt comes.
    pub fn open(namespace: &Namespace, columns: u16, lines: u16) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let home = tempfile::tempdir().context("making a folder for the terminal failed")?;
        let terminal = Self { socket: format!("ackbeat-{}-{number}", std::process::id()), home };
        let mut command = terminal.command(&["-f", "/dev/null", "new-session", "-d"]);
        // `env`: with one word alone tmux asks another shell, which drops the prompt on the way.
        let prompt = format!("PS1={PROMPT} ");
        command.args(["-x", &columns.to_string(), "-y", &lines.to_string(), "env", &prompt, "sh"]);
        // tmux lives where its server was started, and so do the shell and what it starts.
        let output = namespace.run(move || command.output())?.context("starting tmux failed")?;
        if !output.status.success() {
            bail!("tmux opens no terminal: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        terminal.wait_for("the shell's prompt", |screen| screen.contains(PROMPT))?;
        Ok(terminal)
    }

    /// A folder of its own.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        // -u: the client says UTF-8, whatever the locale of the test says.
        command.args(["-u", "-L", &self.socket]).args(arguments);
        command.env_remove("TMUX").env_remove("NO_COLOR").env_remove("ENV");
        command.env("TMUX_TMPDIR", self.home.path());
        command
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output().context("starting tmux failed")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            bail!("`tmux {}` failed: {said}", arguments.join(" "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Types characters.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn type_text(&self, text: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", text]).map(drop)
    }

    /// Presses a key by tmux's name for it: `Enter`, `Escape`, `Down`, `C-c`.
    ///
    /// # Errors
    /// If the terminal is gone, or there is no such key.
    pub fn press(&self, key: &str) -> Result<()> {
        self.tmux(&["send-keys", key]).map(drop)
    }

    /// Gives the shell a command.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn enter(&self, command: &str) -> Result<()> {
        self.type_text(command)?;
        self.press("Enter")
    }

    /// Gives the shell a command and waits until its output is in a file; gives what is in it.
    ///
    /// # Errors
    /// If it did not end.
    pub fn output_of(&self, command: &str) -> Result<String> {
        let (part, whole) = (self.home.path().join("output.part"), self.home.path().join("output"));
        let _ = std::fs::remove_file(&whole);
        self.enter(&format!("{command} > {0}; mv {0} {1}", part.display(), whole.display()))?;
        wait_until(&format!("the output of {command}"), SCREEN_DEADLINE, || Ok(whole.exists()))?;
        std::fs::read_to_string(&whole).context("reading a command's output failed")
    }

    /// Makes it another size.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn resize(&self, columns: u16, lines: u16) -> Result<()> {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]).map(drop)
    }

    /// What is on the screen, line by line, without trailing blanks.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn screen(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The same with the sequences that make colours.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn screen_with_colours(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// What tmux knows about it by a name of its own (`FORMATS` in its manual): `alternate_on`, `cursor_flag`.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn variable(&self, name: &str) -> Result<String> {
        Ok(self.tmux(&["display-message", "-p", &format!("#{{{name}}}")])?.trim().to_owned())
    }

    /// Waits until the screen is as it should be, and gives it.
    ///
    /// # Errors
    /// Names `what` and shows the screen if it did not come.
    pub fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) -> Result<String> {
        let until = Instant::now() + SCREEN_DEADLINE;
        loop {
            let screen = self.screen()?;
            if is_there(&screen) {
                return Ok(screen);
            }
            if Instant::now() >= until {
                bail!("{what} did not come onto the screen within {SCREEN_DEADLINE:?}:\n{screen}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The process that the shell waits for.
    ///
    /// # Errors
    /// If it waits for none.
    pub fn child(&self) -> Result<Pid> {
        let shell = self.variable("pane_pid")?;
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))
            .context("asking for the shell's children failed")?;
        let child = children.split_whitespace().next().context("the shell waits for nothing")?;
        Ok(Pid::from_raw(child.parse().context("a process id is a number")?))
    }

    /// Sends the process that the shell waits for a signal.
    ///
    /// # Errors
    /// As [`Terminal::child`].
    pub fn signal_child(&self, signal: Signal) -> Result<()> {
        kill(self.child()?, signal).with_context(|| format!("sending {signal} failed"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Only the server of this socket; it is gone already if the shell has ended.
        let _ = self.tmux(&["kill-server"]);
    }
}
