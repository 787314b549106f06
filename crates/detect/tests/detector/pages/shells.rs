//! Shells that a script fills, and lookalikes.

use super::Case;

const HTML: &[(&str, &str)] = &[("Content-Type", "text/html; charset=UTF-8")];

pub(super) fn all() -> Vec<Case> {
    let page = |name, body: &str| Case::new(name, "", 200, HTML, body);
    vec![
        page(
            "create react app",
            "<!doctype html><html lang=\"en\"><head><title>App</title><script defer=\"defer\" src=\"/static/js/main.1a2b3c4d.js\"></script></head><body><noscript>You need to enable JavaScript to run this app.</noscript><div id=\"root\"></div></body></html>",
        ),
        page(
            "vite",
            "<!doctype html><html lang=\"en\"><head><title>Shop</title><script type=\"module\" crossorigin src=\"/assets/index-4f9a1b2c.js\"></script><link rel=\"stylesheet\" href=\"/assets/index-9a8b.css\"></head><body><div id=\"app\"></div></body></html>",
        ),
        page(
            "bundle beside a firewall's script",
            "<!doctype html><html lang=en><head><title>Acme</title><script src=\"https://ab.edge.sdk.awswaf.com/ab/cd/challenge.js\" defer></script></head><body><script defer src=\"/build/bundle.js\"></script></body></html>",
        ),
        page(
            "vue cli",
            "<!DOCTYPE html><html lang=en><head><title>Board</title><link href=/js/chunk-vendors.5f.js rel=preload as=script></head><body><noscript><strong>We're sorry but board doesn't work properly without JavaScript enabled. Please enable it to continue.</strong></noscript><div id=app></div><script src=/js/chunk-vendors.5f.js></script></body></html>",
        ),
        page(
            "angular",
            "<!doctype html><html lang=\"en\"><head><title>Portal</title><base href=\"/\"></head><body><app-root></app-root><script src=\"runtime.5f.js\" type=\"module\"></script><script src=\"main.1b.js\" type=\"module\"></script></body></html>",
        ),
        page(
            "next without content",
            "<!DOCTYPE html><html><head><title>Loading</title></head><body><div id=\"__next\"><div class=\"spinner\"></div></div><script id=\"__NEXT_DATA__\" type=\"application/json\">{\"props\":{}}</script><script src=\"/_next/static/chunks/main-5f.js\" defer></script></body></html>",
        ),
        page(
            "nuxt without content",
            "<!DOCTYPE html><html><head><title>Site</title></head><body><div id=\"__nuxt\"></div><script>window.__NUXT__={config:{}}</script><script type=\"module\" src=\"/_nuxt/entry.5f.js\"></script></body></html>",
        ),
        page(
            "sveltekit",
            "<!doctype html><html><head><link rel=\"modulepreload\" href=\"/_app/immutable/entry/start.5f.js\"></head><body><div style=\"display: contents\"><script>{__sveltekit_1a={base:''};import('/_app/immutable/entry/start.5f.js')}</script></div></body></html>",
        ),
        page(
            "flutter",
            "<!DOCTYPE html><html><head><title>Wallet</title></head><body><script src=\"flutter_bootstrap.js\" async></script></body></html>",
        ),
        page(
            "ember",
            "<!DOCTYPE html><html><head><title>Forum</title><meta name=\"forum/config/environment\" content=\"%7B%22modulePrefix%22%3A%22forum%22%7D\"></head><body><script src=\"/assets/vendor-5f.js\"></script><script src=\"/assets/forum-5f.js\"></script></body></html>",
        ),
        page(
            "inertia",
            "<!DOCTYPE html><html><head><title>Panel</title></head><body><div id=\"app\" data-page=\"{&quot;component&quot;:&quot;Home&quot;}\"></div><script type=\"module\" src=\"/build/assets/app-5f.js\"></script></body></html>",
        ),
        page(
            "blazor",
            "<!DOCTYPE html><html><head><title>Tool</title></head><body><div id=\"app\">Loading...</div><div id=\"blazor-error-ui\">An unhandled error has occurred. <a href=\"\">Reload</a></div><script src=\"_framework/blazor.webassembly.js\"></script></body></html>",
        ),
        page(
            "remix in single-page mode",
            "<!DOCTYPE html><html><head><title>x</title></head><body><div>Loading</div><script>window.__remixContext = {\"isSpaMode\":true};</script><script type=\"module\" src=\"/assets/entry.client-5f.js\"></script></body></html>",
        ),
        page(
            "gatsby without content",
            "<!DOCTYPE html><html><head><title>x</title></head><body><div id=\"___gatsby\"></div><script src=\"/app-5f2a.js\" async></script></body></html>",
        ),
        page(
            "loading words in the mount point",
            "<!doctype html><html><head><title>Trader</title></head><body><div id=\"root\"><div class=\"splash\"><p>Loading, one moment please</p></div></div><script src=\"/static/js/bundle.js\"></script></body></html>",
        ),
        page(
            "plain bundle",
            "<!doctype html><html><head><title>Board</title></head><body><main id=\"mount\"></main><script src=\"/dist/bundle.4f9a.js\"></script></body></html>",
        ),
        page(
            "webpack chunks",
            "<!doctype html><html><head><title>Console</title></head><body><div id=\"console\"></div><script src=\"/runtime~main.5f.js\"></script><script src=\"/vendors~main.5f.js\"></script></body></html>",
        ),
        page(
            "qwik",
            "<!DOCTYPE html><html q:container=\"paused\" q:version=\"1.2\"><head><title>x</title></head><body><div></div><script id=\"qwikloader\">(()=>{})()</script></body></html>",
        ),
        page(
            "react with reCAPTCHA 3",
            "<!doctype html><html lang=\"en\"><head><title>App</title><script src=\"https://www.google.com/recaptcha/api.js?render=6Labc\"></script><script defer src=\"/static/js/main.1a2b3c4d.js\"></script></head><body><noscript>You need to enable JavaScript to run this app.</noscript><div id=\"root\"></div></body></html>",
        ),
        page(
            "vite with Turnstile",
            "<!doctype html><html><head><title>App</title><script src=\"https://challenges.cloudflare.com/turnstile/v0/api.js?render=explicit\" async defer></script><script type=\"module\" src=\"/assets/index-4f9a1b2c.js\"></script></head><body><div id=\"app\"></div></body></html>",
        ),
        page(
            "angular with hCaptcha",
            "<!doctype html><html><head><title>Portal</title><script src=\"https://js.hcaptcha.com/1/api.js\" async></script></head><body><div id=\"overlay\"></div><app-root></app-root><script src=\"main.1b.js\" type=\"module\"></script></body></html>",
        ),
        page(
            "react behind Imperva",
            "<!doctype html><html><head><title>Bank</title></head><body><div id=\"root\"></div><script src=\"/static/js/main.1a2b3c4d.js\"></script><script type=\"text/javascript\" src=\"/_Incapsula_Resource?SWJIYLWA=719d&ns=2\" async></script></body></html>",
        ),
        page(
            "vue with the AWS SDK",
            "<!doctype html><html><head><title>Rooms</title><script src=\"https://1a.eu-west-1.sdk.awswaf.com/1a/challenge.js\" defer></script></head><body><div id=\"app\"></div><script src=\"/js/app.5f2a.js\"></script></body></html>",
        ),
        page(
            "react with sensors",
            "<!doctype html><html><head><title>Shop</title><script>window._pxAppId='PXabc';window.ddjskey='A';window.ddoptions={}</script><script src=\"https://js.datadome.co/tags.js\"></script><script src=\"//client.px-cloud.net/PXabc/main.min.js\"></script></head><body><div id=\"root\"></div><script src=\"/static/js/main.1a2b3c4d.js\"></script></body></html>",
        ),
        page(
            "shell behind Cloudflare",
            "<!doctype html><html><head><title>Shop</title></head><body><div id=\"root\"></div><script type=\"module\" src=\"/assets/index-1a2b3c4d.js\"></script><script>(function(){var d=document.createElement('script');d.src='/cdn-cgi/challenge-platform/scripts/jsd/main.js';})()</script><script defer src=\"https://static.cloudflareinsights.com/beacon.min.js\"></script></body></html>",
        ),
        page(
            "shell that remembers a choice",
            "<!doctype html><html><head><title>Board</title><script>if(!/theme=/.test(document.cookie)){document.cookie='theme=dark;path=/'}if(location.href.indexOf('#')>0){history.replaceState(0,'','/')}</script></head><body><div id=\"root\"></div><script src=\"/static/js/main.1a2b3c4d.js\"></script></body></html>",
        ),
        page(
            "shell that checks for old browsers",
            "<!doctype html><html><head><title>Board</title><script src=\"/browser-check.js\"></script></head><body><div id=\"app\"></div><script type=\"module\" src=\"/assets/index-1a2b3c4d.js\"></script></body></html>",
        ),
        page(
            "shell that asks for scripts and cookies",
            "<!doctype html><html><head><title>Desk</title></head><body><noscript>Please enable JavaScript and cookies to continue.</noscript><div id=\"root\"></div><script src=\"/static/js/main.1a2b3c4d.js\"></script></body></html>",
        ),
        page(
            "shell of a log-in",
            "<!doctype html><html><head><title>Sign in</title><meta name=\"robots\" content=\"noindex\"></head><body><div id=\"root\"></div><script src=\"/static/js/main.1a2b3c4d.js\"></script></body></html>",
        ),
        page(
            "shell with a loader's words",
            "<!doctype html><html><head><title>Please wait...</title></head><body><div id=\"app\"><p>Please wait while we load your account</p></div><script src=\"/js/app.5f2a.js\"></script></body></html>",
        ),
        page(
            "shell with security words in its data",
            "<!doctype html><html><head><title>Console</title></head><body><div id=\"root\"></div><script>window.__PRELOADED_STATE__={messages:{blocked:'You have been blocked',captcha:'Please complete the captcha',human:'Verify you are human'}}</script><script src=\"/static/js/main.1a2b3c4d.js\"></script></body></html>",
        ),
        page(
            "angular with a captcha's script",
            "<!doctype html><html><head><title>Desk</title><script src=\"https://www.google.com/recaptcha/api.js?render=6L\"></script></head><body><app-root></app-root><script src=\"main.1a2b3c4d.js\" type=\"module\"></script></body></html>",
        ),
        page(
            "sveltekit with turnstile's script",
            "<!doctype html><html><head><script src=\"https://challenges.cloudflare.com/turnstile/v0/api.js?render=explicit\"></script></head><body><div style=\"display: contents\"><script>import('/_app/immutable/entry/start.5f.js')</script></div></body></html>",
        ),
        page(
            "app router with hcaptcha's script",
            "<!doctype html><html><head><script src=\"https://js.hcaptcha.com/1/api.js?render=explicit\"></script></head><body><template id=\"B:0\"></template><script src=\"/_next/static/chunks/main.js\"></script><script>self.__next_f.push([1,''])</script></body></html>",
        ),
        page(
            "flutter behind a firewall's SDK",
            "<!DOCTYPE html><html><head><script src=\"https://ab.edge.sdk.awswaf.com/ab/challenge.js\"></script></head><body><script src=\"flutter_bootstrap.js\" async></script></body></html>",
        ),
        page(
            "bundle behind incapsula",
            "<!DOCTYPE html><html><head><script defer src=\"/build/bundle.js\"></script></head><body><script src=\"/_Incapsula_Resource?SWJIYLWA=719d\" async></script></body></html>",
        ),
        page(
            "component with a captcha's script",
            "<!DOCTYPE html><html><head><script src=\"https://js.hcaptcha.com/1/api.js\"></script></head><body><the-shop></the-shop><script type=\"module\" src=\"./shop.js\"></script></body></html>",
        ),
        page(
            "component with a word in it",
            "<!DOCTYPE html><html><head><title>Atlas</title></head><body><the-atlas><p>One second, it is starting up</p></the-atlas><script src=\"/boot.js\"></script></body></html>",
        ),
        page(
            "empty element between header and footer",
            "<!DOCTYPE html><html><head><title>Market</title></head><body><a href=\"/\">Home</a> <a href=\"/cart\">Cart</a><div id=\"storefront\"></div><a href=\"/terms\">Terms</a><script src=\"/client.7f.js\"></script></body></html>",
        ),
        page(
            "spinner below a navigation",
            "<!DOCTYPE html><html><head><title>Market</title></head><body><nav><a href=\"/\">Home</a> <a href=\"/sell\">Sell</a></nav><main id=\"content-area\"><div class=\"spinner\"></div></main><script src=\"/b/market.4d5e6f.js\"></script></body></html>",
        ),
        page(
            "elsewhere for readers without scripts",
            "<!DOCTYPE html><html><head><title>Faces</title><noscript><meta http-equiv=\"refresh\" content=\"0; URL=/?noscript=1\"></noscript></head><body><div id=\"mount_0\"></div><script src=\"/app.js\"></script></body></html>",
        ),
        page(
            "mobile application",
            "<!DOCTYPE html><html><head><title>x</title></head><body><ion-app></ion-app><script src=\"main.js\" type=\"module\"></script></body></html>",
        ),
    ]
}

pub(super) fn near() -> Vec<Case> {
    let page = |name, body: &str| Case::new(name, "", 200, HTML, body);
    let text = "<p>We bake bread every morning, and cakes on Saturdays. Come early: the rye is gone by nine, and the rolls by ten. On Mondays we are closed, and in August too. Orders for feasts are taken until Thursday evening.</p>";
    vec![
        page(
            "root with content",
            &format!(
                "<html><head><title>Bakery</title></head><body><div id=root>{text}</div><script src=/static/js/main.1a2b3c4d.js></script></body></html>"
            ),
        ),
        page("nothing at all", ""),
        page("empty body", "<html><head><title>x</title></head><body></body></html>"),
        page(
            "short text without scripts",
            "<html><head><title>x</title></head><body><div id=main><p>Closed today.</p></div></body></html>",
        ),
        page(
            "forum for readers without scripts",
            &format!(
                "<html><head><title>Forum</title></head><body><noscript>{text}{text}</noscript><script src=/assets/app.js></script></body></html>"
            ),
        ),
        page(
            "redirect",
            "<html><head><meta http-equiv=refresh content='0; url=/en/'></head><body><a href=/en/>English</a></body></html>",
        ),
        page(
            "a few lines of code",
            "<html><head><title>mod.rs - source</title><script src=\"../static/main-1a2b.js\" defer></script></head><body><nav><h2>Files</h2></nav><main><h1>mod.rs</h1><the-toolbar></the-toolbar><pre><code>mod addr;\nmod listener;\npub use addr::*;\npub use listener::*;\npub use stream::*;</code></pre></main></body></html>",
        ),
        page(
            "redirect with a script",
            "<html><head><meta http-equiv=refresh content='0; url=/en/'><script src=/count.js></script></head><body></body></html>",
        ),
        page(
            "redirect without its key",
            "<html><head><meta http-equiv=refresh content='0; /en/'><script src=/static/js/main.1a2b.js></script></head><body><div id=root></div></body></html>",
        ),
        page(
            "redirect by script and by refresh",
            "<html><head><script>location.replace('/en/')</script><meta http-equiv=refresh content='0; url=/en/'></head><body>To <a href=/en/>/en/</a></body></html>",
        ),
        page("frames", "<html><frameset><frame src=a.html></frameset></html>"),
        page(
            "picture only",
            "<html><head><title>x</title></head><body><img src=a.jpg></body></html>",
        ),
    ]
}
