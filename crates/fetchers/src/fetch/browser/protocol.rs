//! The commands of the DevTools protocol that a tab needs, as Chromium writes them in JSON.
//!
//! A crate for the whole protocol has 5 MB of generated code, of which this is a hundredth;
//! compiling it took a fifth of the program's build. Fields that nothing sets or reads are left
//! out. An unknown field of a reply is no error.
//!
//! Must not know: sockets, and what a page is.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A command, which serializes to its parameters.
pub(super) trait Command: Serialize {
    /// Name, such as `Page.navigate`.
    const METHOD: &'static str;
    /// The result of the reply.
    type Response: DeserializeOwned;
}

/// Declares commands: the name, the type with its parameters in snake case, and the type of the
/// result. A parameter that is none is left out.
macro_rules! commands {
    ($($method:literal $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? } -> $response:ty;)*) => { $(
        #[derive(Clone, Debug, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub(super) struct $name { $($(#[$attribute])* pub(super) $field: $type),* }

        impl Command for $name {
            const METHOD: &'static str = $method;
            type Response = $response;
        }
    )* };
}

/// Declares the results of commands.
macro_rules! results {
    ($($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? })*) => { $(
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub(super) struct $name { $($(#[$attribute])* pub(super) $field: $type),* }
    )* };
}

commands! {
    "Browser.close" CloseBrowser {} -> IgnoredAny;
    "Browser.getVersion" GetVersion {} -> Version;
    "Browser.setDownloadBehavior" SetDownloadBehavior {
        behavior: &'static str,
        browser_context_id: String,
    } -> IgnoredAny;
    "Emulation.setUserAgentOverride" SetUserAgentOverride { user_agent: String } -> IgnoredAny;
    "Fetch.continueRequest" ContinueRequest {
        request_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        headers: Option<Vec<HeaderEntry>>,
    } -> IgnoredAny;
    "Fetch.continueWithAuth" ContinueWithAuth {
        request_id: String,
        auth_challenge_response: AuthChallengeResponse,
    } -> IgnoredAny;
    "Fetch.enable" EnableFetch { patterns: Vec<RequestPattern>, handle_auth_requests: bool } -> IgnoredAny;
    "Fetch.failRequest" FailRequest { request_id: String, error_reason: &'static str } -> IgnoredAny;
    "Fetch.takeResponseBodyAsStream" TakeResponseBodyAsStream { request_id: String } -> BodyStream;
    "IO.read" ReadStream { handle: String, size: u64 } -> StreamChunk;
    "Inspector.enable" EnableInspector {} -> IgnoredAny;
    "Network.enable" EnableNetwork { max_post_data_size: u64 } -> IgnoredAny;
    "Network.setBlockedURLs" SetBlockedUrls { url_patterns: Vec<BlockPattern> } -> IgnoredAny;
    "Network.setBypassServiceWorker" SetBypassServiceWorker { bypass: bool } -> IgnoredAny;
    "Page.addScriptToEvaluateOnNewDocument" AddScriptToEvaluateOnNewDocument { source: String } -> IgnoredAny;
    "Page.createIsolatedWorld" CreateIsolatedWorld { frame_id: String } -> IsolatedWorld;
    "Page.enable" EnablePage {} -> IgnoredAny;
    "Page.handleJavaScriptDialog" HandleJavaScriptDialog { accept: bool } -> IgnoredAny;
    "Page.navigate" Navigate { url: String } -> Navigation;
    "Runtime.evaluate" Evaluate {
        expression: String,
        context_id: i64,
        return_by_value: bool,
        await_promise: bool,
    } -> Evaluation;
    "Runtime.terminateExecution" TerminateExecution {} -> IgnoredAny;
    "Storage.clearCookies" ClearCookies { browser_context_id: String } -> IgnoredAny;
    "Storage.clearDataForOrigin" ClearDataForOrigin { origin: String, storage_types: &'static str } -> IgnoredAny;
    "SystemInfo.getProcessInfo" GetProcessInfo {} -> ProcessInfos;
    "Target.attachToTarget" AttachToTarget { target_id: String, flatten: bool } -> AttachedSession;
    "Target.closeTarget" CloseTarget { target_id: String } -> IgnoredAny;
    "Target.createBrowserContext" CreateBrowserContext {
        dispose_on_detach: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        proxy_server: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        proxy_bypass_list: Option<&'static str>,
    } -> BrowserContext;
    "Target.createTarget" CreateTarget { url: &'static str, browser_context_id: String } -> CreatedTarget;
    "Target.disposeBrowserContext" DisposeBrowserContext { browser_context_id: String } -> IgnoredAny;
    "Target.setDiscoverTargets" SetDiscoverTargets { discover: bool } -> IgnoredAny;
}

results! {
    AttachedSession { session_id: String }
    BodyStream { stream: String }
    BrowserContext { browser_context_id: String }
    CreatedTarget { target_id: String }
    Evaluation { result: RemoteObject }
    IsolatedWorld { execution_context_id: i64 }
    Navigation { error_text: Option<String> }
    ProcessInfo { id: i64, cpu_time: f64 }
    ProcessInfos { process_info: Vec<ProcessInfo> }
    RemoteObject { value: Option<Value> }
    StreamChunk { base64_encoded: Option<bool>, data: String, eof: bool }
    Version { product: String, user_agent: String }
}

/// A header of a request. All of a request's headers are replaced together.
#[derive(Clone, Serialize)]
pub(super) struct HeaderEntry {
    pub(super) name: String,
    pub(super) value: String,
}

impl fmt::Debug for HeaderEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A signature lets others replay the request for a minute.
        f.debug_struct("HeaderEntry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Requests that Chromium pauses.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestPattern {
    /// None for all types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource_type: Option<&'static str>,
    /// None for all URLs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url_pattern: Option<Cow<'static, str>>,
    /// `Request` or `Response`.
    pub(super) request_stage: &'static str,
}

/// URLs that Chromium does not request.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockPattern {
    pub(super) url_pattern: &'static str,
    pub(super) block: bool,
}

/// The response to a server or proxy that requires a password.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "response")]
pub(super) enum AuthChallengeResponse {
    ProvideCredentials { username: String, password: String },
    CancelAuth,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn params(command: impl Command) -> Value {
        serde_json::to_value(command).unwrap()
    }

    #[test]
    fn commands_are_written_as_the_protocol_names_them() {
        let document = RequestPattern {
            resource_type: Some("Document"),
            url_pattern: None,
            request_stage: "Response",
        };
        let https = RequestPattern {
            resource_type: None,
            url_pattern: Some("https://*".into()),
            request_stage: "Request",
        };
        let patterns = vec![document, https];
        assert_eq!(
            params(EnableFetch { patterns, handle_auth_requests: true }),
            json!({
                "patterns": [
                    { "resourceType": "Document", "requestStage": "Response" },
                    { "urlPattern": "https://*", "requestStage": "Request" },
                ],
                "handleAuthRequests": true,
            })
        );
        let icon = BlockPattern { url_pattern: "*://*:*/favicon.ico", block: true };
        assert_eq!(
            params(SetBlockedUrls { url_patterns: vec![icon] }),
            json!({ "urlPatterns": [{ "urlPattern": "*://*:*/favicon.ico", "block": true }] })
        );
        let response = AuthChallengeResponse::ProvideCredentials {
            username: "u".into(),
            password: "p".into(),
        };
        assert_eq!(
            params(ContinueWithAuth { request_id: "r".into(), auth_challenge_response: response }),
            json!({
                "requestId": "r",
                "authChallengeResponse": { "response": "ProvideCredentials", "username": "u", "password": "p" },
            })
        );
        assert_eq!(
            params(ContinueWithAuth {
                request_id: "r".into(),
                auth_challenge_response: AuthChallengeResponse::CancelAuth
            }),
            json!({ "requestId": "r", "authChallengeResponse": { "response": "CancelAuth" } })
        );
        // Chromium refuses `null` as parameters.
        assert_eq!(params(EnablePage {}), json!({}));
    }

    #[test]
    fn what_is_not_set_is_not_sent() {
        let context = CreateBrowserContext {
            dispose_on_detach: true,
            proxy_server: None,
            proxy_bypass_list: None,
        };
        assert_eq!(params(context), json!({ "disposeOnDetach": true }));
        let mut request = ContinueRequest { request_id: "r".into(), headers: None };
        assert_eq!(params(request.clone()), json!({ "requestId": "r" }));
        request.headers = Some(vec![HeaderEntry { name: "A".into(), value: "b".into() }]);
        assert_eq!(
            params(request),
            json!({ "requestId": "r", "headers": [{ "name": "A", "value": "b" }] })
        );
    }

    #[test]
    fn a_reply_may_have_fields_that_nobody_reads() {
        let reply = json!({ "frameId": "f", "loaderId": "l", "errorText": "net::ERR_FAILED", "isDownload": false });
        let navigation: Navigation = serde_json::from_value(reply).unwrap();
        assert_eq!(navigation.error_text.as_deref(), Some("net::ERR_FAILED"));
        let navigation: Navigation = serde_json::from_value(json!({ "frameId": "f" })).unwrap();
        assert_eq!(navigation.error_text, None);
        let reply = json!({ "result": { "type": "undefined" } });
        assert_eq!(serde_json::from_value::<Evaluation>(reply).unwrap().result.value, None);
        serde_json::from_value::<<EnablePage as Command>::Response>(json!({})).unwrap();
    }
}
