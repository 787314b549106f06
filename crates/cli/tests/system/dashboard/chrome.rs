//! A Chromium of the test, controlled over its DevTools socket.
//!
//! Owns: the conversation: commands, their responses, and all events in between.
//!
//! Must not know: the content of the page.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

/// A time limit for any step. No test passes or fails by speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one tab.
pub(crate) struct Chrome {
    child: Child,
    socket: WebSocket<TcpStream>,
    session: Option<String>,
    next: u64,
    /// The events, the oldest first.
    pub(crate) events: Vec<Value>,
    _profile: TempDir,
}

fn program() -> PathBuf {
    let names = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"];
    let folders: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let candidates =
        names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .expect("a Chromium: `make chromium` installs one")
}

impl Chrome {
    /// Starts the browser with a window of this size.
    pub(crate) fn start(width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new(program())
            .args([
                "--headless=new",
                "--no-sandbox",
                "--remote-debugging-port=0",
                "--no-first-run",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-extensions",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .find_map(|line| {
                line.unwrap().strip_prefix("DevTools listening on ").map(str::to_owned)
            })
            .expect("Chromium says where it listens");
        // Read its later output, so that it never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        let host = address.trim_start_matches("ws://").split('/').next().unwrap().to_owned();
        let stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let socket = loop_handshake(&address, stream);
        let mut chrome =
            Self { child, socket, session: None, next: 0, events: Vec::new(), _profile: profile };
        let target = chrome.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = chrome.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        chrome.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility", "Audits"] {
            chrome.call(&format!("{domain}.enable"), json!({}));
        }
        chrome.size(width, height);
        chrome
    }

    /// Sends a command and returns its result; a rejected one fails the test.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(message.to_string())).unwrap();
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "{method} is not answered");
            let Some(message) = self.read() else { continue };
            if message["id"] == json!(id) {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn read(&mut self) -> Option<Value> {
        match self.socket.read() {
            Ok(Message::Text(text)) => Some(serde_json::from_str(&text).unwrap()),
            Ok(_) => None,
            Err(tungstenite::Error::Io(error))
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                None
            }
            Err(error) => panic!("Chromium is gone: {error}"),
        }
    }

    /// Returns the events called `method` so far.
    pub(crate) fn seen(&mut self, method: &str) -> Vec<Value> {
        // A response follows all earlier events.
        self.call("Runtime.evaluate", json!({"expression": "0"}));
        self.events
            .iter()
            .filter(|event| event["method"] == method)
            .map(|event| event["params"].clone())
            .collect()
    }

    /// Returns the value of an expression in the page; an exception fails the test.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(
            result.get("exceptionDetails").is_none(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.eval(&format!("!!({expression})")) != json!(true) {
            if begun.elapsed() > PATIENCE {
                let body = self.eval("document.body.innerText");
                panic!("never true: {expression}\n{}", body.as_str().unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Opens an address.
    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
    }

    /// Resizes the window.
    pub(crate) fn size(&mut self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Sets the person's preferences for colours and motion.
    pub(crate) fn prefers(&mut self, scheme: &str, reduced_motion: bool) {
        let motion = if reduced_motion { "reduce" } else { "no-preference" };
        let features = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Presses a key.
    pub(crate) fn key(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            "Escape" => (27, None),
            "ArrowLeft" => (37, None),
            "ArrowRight" => (39, None),
            " " => (32, Some(" ")),
            "/" => (191, Some("/")),
            "?" => (191, Some("?")),
            "e" => (69, Some("e")),
            other => panic!("{other} is not on this keyboard"),
        };
        let mut down =
            json!({"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code});
        if let Some(text) = text {
            down["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", down);
        let up = json!({"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", up);
    }

    /// Moves the pointer.
    pub(crate) fn point(&mut self, x: f64, y: f64) {
        self.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": x, "y": y}));
    }

    /// Types text at the focus.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Returns a picture of the window as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        use base64::Engine as _;
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()
    }
}

fn loop_handshake(address: &str, stream: TcpStream) -> WebSocket<TcpStream> {
    let mut attempt = tungstenite::client(address, stream);
    loop {
        match attempt {
            Ok((socket, _)) => return socket,
            Err(tungstenite::HandshakeError::Interrupted(middle)) => attempt = middle.handshake(),
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Chrome {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
