//! A headless Chromium, driven over the WebDriver protocol of Debian's `chromedriver`.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A browser with one page. Dropping the value ends the browser.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Held open, because the driver ends when it cannot print.
    _output: Lines<BufReader<ChildStdout>>,
    profile: PathBuf,
}

/// Whether there is a browser to test in. If there is none, a message is written to standard error
/// directly, which the test runner does not capture.
pub fn is_there() -> bool {
    let there = ["/usr/bin/chromium", "/usr/bin/chromedriver"]
        .iter()
        .all(|file| std::path::Path::new(file).exists());
    if !there {
        let _ = std::io::stderr().write_all(
            b"\n*** NOT TESTED: the HTML report in a browser: /usr/bin/chromium and \
                /usr/bin/chromedriver are not there.\n\
              *** apt-get install chromium chromium-driver\n\n",
        );
    }
    there
}

impl Browser {
    /// Starts a browser with an empty profile of its own.
    pub fn start(name: &str) -> Browser {
        let profile = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("profiles").join(name);
        let _ = std::fs::remove_dir_all(&profile);
        std::fs::create_dir_all(&profile).expect("a folder for the profile");
        let mut driver = Command::new("/usr/bin/chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut lines = BufReader::new(driver.stdout.take().expect("piped")).lines();
        let port = loop {
            let line = lines.next().expect("chromedriver names its port").expect("text");
            if let Some(port) = line.split("successfully on port ").nth(1) {
                break port.trim_end_matches('.').parse().expect("a port");
            }
        };
        let mut browser = Browser { driver, port, session: String::new(), _output: lines, profile };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            &format!("--user-data-dir={}", browser.profile.display()),
        ]
        .map(str::to_string);
        let options = json!({"binary": "/usr/bin/chromium", "args": arguments});
        let capabilities =
            json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let made = browser.send(
            "POST",
            "/session",
            &json!({"capabilities": {"alwaysMatch": capabilities}}),
        );
        browser.session = made["sessionId"].as_str().expect("a session").to_string();
        browser
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// The value of a JavaScript expression.
    pub fn value(&self, expression: &str) -> Value {
        self.post("/execute/sync", &json!({"script": format!("return {expression};"), "args": []}))
    }

    /// Moves the mouse to the first element that matches a CSS selector.
    pub fn point_at(&self, selector: &str) {
        let element = self.post("/element", &json!({"using": "css selector", "value": selector}));
        let action =
            json!({"type": "pointerMove", "duration": 0, "origin": element, "x": 0, "y": 0});
        let mouse = json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [action]});
        self.value(&format!(
            "document.querySelector('{selector}').scrollIntoView({{block: 'center'}})"
        ));
        self.post("/actions", &json!({"actions": [mouse]}));
    }

    /// A command of the browser's own protocol.
    pub fn tell(&self, command: &str, parameters: &Value) {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}));
    }

    /// The messages on the page's console.
    pub fn console(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({"type": "browser"}));
        log.as_array().expect("a list").iter().map(Value::to_string).collect()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.send("POST", &format!("/session/{}{path}", self.session), body)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream =
            TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: \
                application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a header");
            match line.trim_end() {
                "" => break,
                line => {
                    if let Some(found) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = found.trim().parse().expect("a length");
                    }
                }
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).expect("a whole answer");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert!(answer["value"].get("error").is_none(), "{method} {path} {body}: {answer:#}");
        answer["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.send("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
