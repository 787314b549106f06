//! Near misses: requested pages that look like blocks to a hasty detector.

use super::Case;

const HTML: &[(&str, &str)] = &[("Content-Type", "text/html; charset=UTF-8")];

/// Returns at least `n` characters of plain words.
fn words(n: usize) -> String {
    "Gardens need water in the morning and shade at noon. ".repeat(n.div_ceil(53))
}

fn article(n: usize) -> String {
    format!(
        "<article>{}</article>",
        words(n).split_inclusive(". ").map(|s| format!("<p>{s}</p>")).collect::<String>()
    )
}

fn links(n: usize) -> String {
    (0..n).map(|i| format!("<a href=\"/{i}\">Page {i}</a> ")).collect()
}

pub(super) fn all() -> Vec<Case> {
    let page = |name, body: &str| Case::new(name, "", 200, HTML, body);
    let long = article(2_000);
    let short = article(400);
    let menu = links(12);
    let px = r#"<script>window._pxAppId='PXabc';(function(){var p=document.createElement('script');p.src='//client.px-cloud.net/PXabc/main.min.js';})()</script>"#;
    let next = r#"<script id="__NEXT_DATA__" type="application/json">{"props":{}}</script>"#;
    vec![
        // Words about blocks
        page(
            "blog about captchas",
            &format!(
                "<html><head><title>Why CAPTCHA is dying - Notes</title></head><body><h1>Why CAPTCHA is dying</h1><p>Sites ask you to verify you are human with reCAPTCHA or hCaptcha. Access denied is what follows.</p>{long}</body></html>"
            ),
        ),
        page(
            "documentation of a firewall",
            &format!(
                "<html><head><title>Web Application Firewall - Docs</title></head><body>{menu}<h1>Block pages</h1><p>The block page says: Sorry, you have been blocked. The challenge page has the title Just a moment and the object window._cf_chl_opt.</p><pre>&lt;script&gt;window._cf_chl_opt={{}}&lt;/script&gt;</pre>{long}</body></html>"
            ),
        ),
        page(
            "short glossary entry",
            &format!(
                "<html><head><title>Web application firewall | Glossary</title></head><body>{menu}<h1>Web application firewall</h1><p>A web application firewall looks at requests and drops those that look like attacks, those of web crawlers among them. {}</p></body></html>",
                words(500)
            ),
        ),
        page(
            "short news on a hack",
            &format!(
                "<html><head><title>Attack on a bank - Daily</title></head><body>{menu}<p>The bank said it had noticed suspicious activity on the accounts of customers, and unusual traffic. Automated requests came from many countries. {}</p></body></html>",
                words(600)
            ),
        ),
        page(
            "changelog",
            &format!(
                "<html><head><title>Changes</title></head><body><h1>Changes</h1><ul><li>Fixed: access denied for users behind a proxy</li><li>Added: rate limit exceeded is answered with 429</li><li>Robots are not allowed in /private</li></ul>{}</body></html>",
                article(1100)
            ),
        ),
        page(
            "help: why was I blocked",
            &format!(
                "<html><head><title>Help</title></head><body>{}<h1>I cannot log in</h1><p>If you see that your account has been blocked, write to us. {}</p></body></html>",
                links(25),
                words(500)
            ),
        ),
        page(
            "page about robots.txt",
            &format!(
                "<html><head><title>robots.txt</title></head><body>{menu}<p>The file tells web crawlers which pages are theirs. {}</p></body></html>",
                words(700)
            ),
        ),
        page(
            "game called Blocked",
            &format!(
                "<html><head><title>Blocked</title></head><body>{menu}<h1>Blocked</h1>{}</body></html>",
                article(900)
            ),
        ),
        page(
            "fitness challenge",
            &format!(
                "<html><head><title>Challenge</title></head><body>{menu}<h1>30 days</h1>{}</body></html>",
                article(1500)
            ),
        ),
        page(
            "poem",
            &format!(
                "<html><head><title>One Moment</title></head><body><h1>One Moment</h1>{}</body></html>",
                article(1300)
            ),
        ),
        page(
            "song in Spanish",
            &format!(
                "<html lang=es><head><title>Un momento</title></head><body>{menu}<h1>Un momento</h1>{}</body></html>",
                article(1600)
            ),
        ),
        page(
            "firewall product",
            &format!(
                "<html><head><title>Firewall</title></head><body>{menu}<h1>Our firewall</h1>{}</body></html>",
                article(1000)
            ),
        ),
        page(
            "film called Access Denied",
            &format!(
                "<html><head><title>Access Denied - Film Base</title></head><body>{}<h1>Access Denied</h1>{}</body></html>",
                links(30),
                article(700)
            ),
        ),
        page(
            "forum question",
            &format!(
                "<html><head><title>Access denied for user root - Forum</title></head><body>{menu}<h1>Access denied for user root</h1><p>I get: Access denied for user 'root'@'localhost'. {}</p></body></html>",
                words(400)
            ),
        ),
        page(
            "verification of documents",
            &format!(
                "<html lang=fr><head><title>Vérification</title></head><body>{menu}<h1>Vérification des documents</h1>{}</body></html>",
                article(900)
            ),
        ),
        page(
            "robots exhibition",
            &format!(
                "<html><head><title>Are you human?</title></head><body>{}<h1>Are you human?</h1><p>An exhibition on machines. {}</p></body></html>",
                links(30),
                words(1500)
            ),
        ),
        page(
            "wiki page on captcha",
            &format!(
                "<html><head><title>CAPTCHA - Encyclopedia</title></head><body>{}<h1>CAPTCHA</h1>{}</body></html>",
                links(40),
                article(1800)
            ),
        ),
        page(
            "short note on captcha",
            &format!(
                "<html><head><title>Captcha | Glossary</title></head><body>{menu}<h1>Captcha</h1><p>A test that tells people from programs. {}</p></body></html>",
                words(1200)
            ),
        ),
        // Forms
        page(
            "log-in with reCAPTCHA",
            &format!(
                "<html><head><title>Sign in</title><script src=\"https://www.google.com/recaptcha/api.js\"></script></head><body><h1>Sign in</h1><form><label>E-mail</label><input name=email><label>Password</label><input type=password name=p><div class=\"g-recaptcha\"></div><button>Sign in</button></form><p>This site is protected by reCAPTCHA and the Google Privacy Policy and Terms of Service apply.</p>{}</body></html>",
                links(5)
            ),
        ),
        page(
            "contact form with Turnstile",
            &format!(
                "<html><head><title>Contact</title><script src=\"https://challenges.cloudflare.com/turnstile/v0/api.js\" async defer></script></head><body>{menu}<h1>Write to us</h1><form><input name=name><input name=mail><textarea name=text></textarea><div class=\"cf-turnstile\" data-sitekey=\"0x\"></div><button>Send</button></form><p>{}</p></body></html>",
                words(250)
            ),
        ),
        page(
            "contact form that says so",
            &format!(
                "<html><head><title>Contact us</title></head><body>{menu}<h1>Contact us</h1><form><label>Name<input name=n></label><label>E-mail<input name=e></label><label>Message<textarea></textarea></label><p>Please verify that you are not a robot: what is two and three?</p><input name=q><input type=submit></form><p>{}</p></body></html>",
                words(300)
            ),
        ),
        page(
            "registration with a captcha",
            &format!(
                "<html><head><title>Register</title></head><body>{}<form><input name=user><input name=mail><input type=password><input type=password><img src=\"/captcha.png\"><p>Please enter the characters you see below</p><input name=captcha><input type=submit></form></body></html>",
                links(6)
            ),
        ),
        page(
            "newsletter in the footer",
            &format!(
                "<html><head><title>Bakery</title></head><body><h1>Bakery</h1><p>{}</p><form><input name=mail><div class=\"h-captcha\"></div><button>Subscribe</button></form><p>This site is protected by hCaptcha and its Privacy Policy and Terms of Service apply.</p></body></html>",
                words(400)
            ),
        ),
        page(
            "comment form",
            &format!(
                "<html><head><title>A post</title></head><body>{short}<form><textarea></textarea><label>Prove you are human: 7 + 2 =<input name=sum></label><input type=submit></form>{menu}</body></html>"
            ),
        ),
        page(
            "password reset",
            "<html><head><title>Forgot your password?</title></head><body><h1>Forgot your password?</h1><p>Give your e-mail address and we send you a link.</p><form><input name=mail><div class=\"g-recaptcha\"></div><button>Send</button></form><a href=/>Home</a> <a href=/login>Sign in</a> <a href=/join>Join</a> <a href=/help>Help</a></body></html>",
        ),
        // Vendors that are only present
        page(
            "cloudflare beacon and e-mail protection",
            &format!(
                "<html><head><title>Shop</title><script src=\"/cdn-cgi/scripts/7d0fa10a/cloudflare-static/rocket-loader.min.js\"></script></head><body>{short}<a href=\"/cdn-cgi/l/email-protection\" class=\"__cf_email__\" data-cfemail=\"a1\">[email&#160;protected]</a><script defer src=\"https://static.cloudflareinsights.com/beacon.min.js\"></script></body></html>"
            ),
        ),
        page(
            "cloudflare detection script",
            &format!(
                "<html><head><title>Shop</title></head><body>{short}<script>(function(){{function c(){{var b=a.contentDocument;d.innerHTML=\"window.__CF$cv$params={{r:'8c',t:'MTc='}};var a=document.createElement('script');a.src='/cdn-cgi/challenge-platform/scripts/jsd/main.js';\"}}}})();</script></body></html>"
            ),
        ),
        page(
            "small page with the detection script",
            "<html><head><title>Status</title></head><body><p>All systems work.</p><script>var a=document.createElement('script');a.src='/cdn-cgi/challenge-platform/scripts/jsd/main.js';</script></body></html>",
        ),
        page(
            "PerimeterX sensor",
            &format!("<html><head><title>News</title>{px}</head><body>{menu}{short}</body></html>"),
        ),
        page(
            "DataDome tag",
            &format!(
                "<html><head><title>Ads</title><script>window.ddjskey='ABC';window.ddoptions={{ajaxListenerPath:true}};</script><script src=\"https://js.datadome.co/tags.js\" async></script></head><body>{menu}{short}</body></html>"
            ),
        ),
        page(
            "Akamai sensor",
            &format!(
                "<html><head><title>Air</title></head><body>{menu}{short}<script type=\"text/javascript\" src=\"/akam/13/5f2\" defer></script><noscript><img src=\"https://www.air.test/akam/13/pixel_5f2?a=dD0\" style=\"visibility: hidden\"/></noscript></body></html>"
            ),
        ),
        page(
            "Imperva loader on a page",
            &format!(
                "<html><head><title>Bank</title></head><body>{menu}{short}<script type=\"text/javascript\" src=\"/_Incapsula_Resource?SWJIYLWA=719d&ns=1\" async></script></body></html>"
            ),
        ),
        page(
            "AWS WAF SDK",
            &format!(
                "<html><head><title>Booking</title><script src=\"https://1a.edge.sdk.awswaf.com/1a/challenge.compact.js\" defer></script></head><body>{menu}{short}</body></html>"
            ),
        ),
        page(
            "Kasada sensor",
            &format!(
                "<html><head><title>Tickets</title></head><body>{menu}{short}<script src=\"/149e9513-01fa-4fb0-aad4-566afd725d1b/2d206a39-8ed7-437e-a3be-862e0f06eea3/p.js\"></script></body></html>"
            ),
        ),
        page(
            "queue connector",
            &format!(
                "<html><head><title>Tickets</title><script src=\"//static.queue-it.net/script/queueclient.min.js\"></script></head><body>{menu}{short}</body></html>"
            ),
        ),
        page(
            "a site that builds captchas",
            &format!(
                "<html><head><title>hCaptcha alternatives compared</title></head><body>{menu}<h1>Captchas</h1><div class=\"g-recaptcha\"></div>{short}</body></html>"
            ),
        ),
        // Banners without scripts
        page(
            "noscript banner",
            &format!(
                "<html><head><title>Town hall</title></head><body><noscript><p>Please enable JavaScript to use all of this site.</p></noscript>{menu}{short}</body></html>"
            ),
        ),
        page(
            "noscript banner on a short page",
            "<html><head><title>Opening hours</title></head><body><noscript>Please enable JavaScript.</noscript><h1>Opening hours</h1><p>Monday to Friday from nine to five, Saturday from ten to two. On holidays we are closed. You find us in the old mill beside the bridge, second door on the left. Bring your own bag. We take cards and cash, and the parking is free for an hour.</p></body></html>",
        ),
        page(
            "cookies needed banner",
            &format!(
                "<html><head><title>Library</title></head><body><p>Please enable cookies in your browser for the catalogue.</p>{menu}{}</body></html>",
                article(700)
            ),
        ),
        // Rendered by frameworks, with content
        page(
            "next with content",
            &format!(
                "<html><head><title>Store</title></head><body><div id=\"__next\">{menu}{short}</div>{next}<script src=\"/_next/static/chunks/main-abc.js\"></script></body></html>"
            ),
        ),
        page(
            "nuxt with content",
            &format!(
                "<html><head><title>Store</title></head><body><div id=\"__nuxt\">{menu}{short}</div><script>window.__NUXT__={{}}</script></body></html>"
            ),
        ),
        page(
            "gatsby with content",
            &format!(
                "<html><head><title>Blog</title></head><body><div id=\"___gatsby\"><div id=\"gatsby-focus-wrapper\">{short}</div></div></body></html>"
            ),
        ),
        page(
            "react root with content",
            &format!(
                "<html><head><title>Blog</title></head><body><div id=\"root\">{short}</div><script src=\"/static/js/main.1a2b3c4d.js\"></script></body></html>"
            ),
        ),
        page(
            "angular universal",
            &format!(
                "<html><head><title>Blog</title></head><body><app-root ng-version=\"17.0.1\" ng-server-context=\"ssr\">{short}</app-root><script src=\"main.js\" type=\"module\"></script></body></html>"
            ),
        ),
        // Small pages
        page(
            "redirect stub",
            "<!DOCTYPE html><html><head><title>Redirecting...</title><meta http-equiv=\"refresh\" content=\"0; url=https://docs.test/latest/\"><link rel=\"canonical\" href=\"https://docs.test/latest/\"></head><body><p>Redirecting to <a href=\"https://docs.test/latest/\">https://docs.test/latest/</a></p></body></html>",
        ),
        page(
            "redirect by script",
            "<html><head><title>Redirecting</title></head><body><a href=\"/en/\">Click here if you are not redirected</a><script>location.replace('/en/')</script></body></html>",
        ),
        page(
            "language chooser",
            "<html><body><script>var l=navigator.language;location.href=l.startsWith('de')?'/de/':'/en/';</script><a href=/de/>Deutsch</a> <a href=/en/>English</a></body></html>",
        ),
        page(
            "parked domain",
            "<!DOCTYPE html><html><head><script>window.onload=function(){window.location.href=\"/lander\"}</script></head></html>",
        ),
        page(
            "parked domain with words",
            "<html><head><title>gardens.test</title></head><body><h1>gardens.test</h1><p>This domain is for sale. Make an offer.</p></body></html>",
        ),
        page(
            "index of",
            "<html><head><title>Index of /pub</title></head><body><h1>Index of /pub</h1><pre><a href=\"../\">../</a>\n<a href=\"a.zip\">a.zip</a> 01-Jan-2024 1K</pre></body></html>",
        ),
        page(
            "nginx welcome",
            "<html><head><title>Welcome to nginx!</title></head><body><h1>Welcome to nginx!</h1><p>If you see this page, the nginx web server is successfully installed and working. Further configuration is required.</p><p><em>Thank you for using nginx.</em></p></body></html>",
        ),
        page("it works", "<html><body><h1>It works!</h1></body></html>"),
        page(
            "coming soon",
            "<html><head><title>Coming soon</title></head><body><h1>Coming soon</h1><p>We are working on something new. Leave your address.</p><form><input name=mail><button>Tell me</button></form></body></html>",
        ),
        page(
            "maintenance",
            "<html><head><title>Be right back</title></head><body><h1>We'll be right back</h1><p>The site is down for maintenance and back in an hour. Please wait.</p></body></html>",
        ),
        page(
            "consent page",
            "<html><head><title>Before you continue</title></head><body><h1>Before you continue</h1><p>We use cookies and data to deliver and maintain services, track outages and protect against spam, fraud and abuse, and measure audience engagement.</p><form><input type=submit value=\"Reject all\"></form><form><input type=submit value=\"Accept all\"></form><a href=/privacy>Privacy</a> <a href=/terms>Terms</a></body></html>",
        ),
        page(
            "age gate",
            "<html><head><title>Winery</title></head><body><h1>Are you over 18?</h1><p>You must be of legal drinking age to visit this site.</p><button onclick=\"document.cookie='age=1';location.reload()\">Yes</button> <button>No</button></body></html>",
        ),
        page(
            "theme switcher in a small page",
            "<html><head><title>Note</title><script>document.cookie='theme=dark; path=/';if(location.hash)location.href='#top'</script></head><body><p>A note about the weather: rain until noon and sun in the afternoon, wind from the west.</p></body></html>",
        ),
        page(
            "thank you",
            "<html><head><title>Thank you</title></head><body><h1>Thank you!</h1><p>Your message has been sent. We answer within two days.</p><a href=/>Back</a></body></html>",
        ),
        page(
            "unsubscribe",
            "<html><head><title>Unsubscribe</title></head><body><p>You have been unsubscribed.</p><script src=\"/js/app.js\"></script></body></html>",
        ),
        page(
            "error page of an application",
            "<html><head><title>Error</title></head><body><h1>Something went wrong</h1><p>The request could not be processed. Please try again later. Request id 77.</p></body></html>",
        ),
        page(
            "payment hand-over",
            "<html><head><title>Please wait</title></head><body onload=\"document.forms[0].submit()\"><p>Please wait while we take you to the bank.</p><form method=post action=\"https://bank.test/pay\"><input type=hidden name=a value=1><noscript><input type=submit></noscript></form></body></html>",
        ),
        page(
            "saml hand-over",
            "<html><head><title>Working...</title></head><body><form method=\"POST\" name=\"hiddenform\" action=\"https://login.test/sso\"><input type=\"hidden\" name=\"SAMLResponse\" value=\"PHN\"><noscript><p>Script is disabled. Click Submit to continue.</p><input type=\"submit\" value=\"Submit\"></noscript></form><script>window.setTimeout('document.forms[0].submit()', 0);</script></body></html>",
        ),
        page(
            "frameset",
            "<html><head><title>Old home page</title></head><frameset cols=\"20%,80%\"><frame src=menu.html><frame src=main.html><noframes>Your browser shows no frames.</noframes></frameset></html>",
        ),
        page("counter", "<html><body>42</body></html>"),
        page(
            "picture",
            "<html><head><title>sunset.jpg</title></head><body><img src=\"sunset.jpg\"></body></html>",
        ),
        page(
            "map in a frame",
            "<html><head><title>Where we are</title></head><body><iframe src=\"https://maps.test/embed?x=1\"></iframe></body></html>",
        ),
        page(
            "password strength with hashes",
            &format!(
                "<html><head><title>Hash tool</title></head><body><h1>SHA-256 of a text</h1><textarea></textarea><p>Type something and see its hash. {}</p><script>async function h(t){{const d=await crypto.subtle.digest('SHA-256',new TextEncoder().encode(t));let nonce=0;location.hash=nonce}}</script></body></html>",
                words(250)
            ),
        ),
        page(
            "hash tool with few words",
            "<html><head><title>SHA-256</title></head><body><h1>SHA-256</h1><textarea></textarea><output></output><script>const sha=async t=>crypto.subtle.digest('SHA-256',new TextEncoder().encode(t));document.querySelector('textarea').oninput=e=>sha(e.target.value)</script></body></html>",
        ),
        page(
            "forgotten password with a captcha",
            "<html><head><title>Forgotten password</title><script src=\"https://www.google.com/recaptcha/api.js\"></script></head><body><h1>Forgotten your password?</h1><p>We will send you a link.</p><form><input type=\"email\" name=\"address\"><div class=\"g-recaptcha\" data-sitekey=\"6L\"></div><button>Send</button></form></body></html>",
        ),
        page(
            "user name and a widget",
            "<html><head><title>Reset</title></head><body><form><label>User <input name=\"username\"></label><div class=\"cf-turnstile\"></div><p>Verify you are human</p><button>Send</button></form></body></html>",
        ),
        page(
            "code sent by mail",
            "<html><head><title>Verification</title></head><body><p>We sent you a code.</p><form><input type=tel name=code><button>Go on</button></form></body></html>",
        ),
        page(
            "song called Captcha",
            &format!(
                "<html><head><title>Captcha</title><meta property=\"og:type\" content=\"music.song\"></head><body><p>The next track is You have been blocked. {}</p></body></html>",
                words(300)
            ),
        ),
        page(
            "answer in a forum with a quoted block page",
            &format!(
                "<html><head><title>Error 1020</title></head><body><nav>{}</nav><p>Visitors see: \"Sorry, you have been blocked.\" {}</p></body></html>",
                links(5),
                words(300)
            ),
        ),
        page(
            "film called I'm Not a Robot",
            &format!(
                "<html><head><title>I'm Not a Robot</title></head><body>{}<p>{}</p></body></html>",
                links(8),
                words(300)
            ),
        ),
        page(
            "status codes explained",
            &format!(
                "<html><head><title>403</title></head><body>{}<p>403: you don't have permission to access this. {}</p></body></html>",
                links(8),
                words(300)
            ),
        ),
        page(
            "SDK of a firewall explained",
            &format!(
                "<html><head><title>The SDK</title></head><body>{menu}<p>{}</p><script>window.awsWaf = AwsWafIntegration.getToken()</script></body></html>",
                words(600)
            ),
        ),
        page(
            "host of captchas in a link",
            &format!(
                "<html><head><title>Allow these hosts</title></head><body>{menu}<p><a href=\"https://geo.captcha-delivery.com/\">this one</a> {}</p></body></html>",
                words(900)
            ),
        ),
        page(
            "chinese notice that speaks of a captcha",
            &format!(
                "<html><head><meta charset=utf-8><title>通知</title></head><body><p>{}系统检测到异常流量，请输入验证码后再查询。</p></body></html>",
                "花园早上需要浇水，中午需要遮阳。".repeat(30)
            ),
        ),
        page(
            "list of changes",
            "<html><head><title>2.4.1</title></head><body><pre>2.4.1 * fix a crash when the list of tides is empty * captcha: try once more when the image does not load * access denied page: show the number of the request 2.4.0 * new: night mode * new: calendars * new: tides of the other side</pre></body></html>",
        ),
        page(
            "one-time password",
            "<html><head><title>Verify</title></head><body><h1>Two steps</h1><form><input name=\"otp\"><button>Verify</button></form></body></html>",
        ),
        page(
            "imprint with a score's script",
            &format!(
                "<html><head><title>Imprint</title><script src=\"https://www.google.com/recaptcha/api.js?render=6L\"></script></head><body><p>This site is protected by reCAPTCHA and the Google Privacy Policy applies. {}</p></body></html>",
                words(120)
            ),
        ),
        page(
            "membership with a captcha",
            &format!(
                "<html><head><title>Join us</title></head><body>{menu}<p>{}</p><form><input name=first><input type=email name=address><p>Please confirm you are not a robot:</p><div class=\"g-recaptcha\"></div></form></body></html>",
                words(150)
            ),
        ),
        Case::new(
            "missing page in its own words",
            "",
            404,
            HTML,
            "<html><head><title>Nothing here</title></head><body><p>Forbidden fruit? No, this page does not exist.</p></body></html>",
        ),
        Case::new(
            "log-in of HTTP",
            "",
            401,
            &[HTML[0], ("WWW-Authenticate", "Basic realm=\"x\"")],
            "<html><head><title>401 - Access is denied</title></head><body><h1>Access is denied</h1><p>You are not authorized to access this page.</p></body></html>",
        ),
        Case::new(
            "JSON that speaks of captchas",
            "",
            200,
            &[("Content-Type", "application/json")],
            r#"{"error":"captcha_required","message":"Please verify you are human","widget":"g-recaptcha"}"#,
        ),
        Case::new(
            "script file",
            "",
            200,
            &[("Content-Type", "application/javascript")],
            "window._cf_chl_opt={};document.cookie='a=1';location.reload()",
        ),
        Case::new(
            "cloudflare in front",
            "",
            200,
            &[
                HTML[0],
                ("Server", "cloudflare"),
                ("CF-RAY", "8c1-FRA"),
                ("Set-Cookie", "__cf_bm=abc; path=/"),
            ],
            &format!("<html><head><title>Shop</title></head><body>{short}</body></html>"),
        ),
        Case::new(
            "datadome in front",
            "",
            200,
            &[
                HTML[0],
                ("X-DataDome", "protected"),
                ("Set-Cookie", "datadome=abc; Max-Age=31536000"),
            ],
            &format!("<html><head><title>Shop</title></head><body>{short}</body></html>"),
        ),
        Case::new(
            "perimeterx in front",
            "",
            200,
            &[HTML[0], ("Set-Cookie", "_px3=abc; path=/"), ("X-PX-Cookies", "1")],
            &format!("<html><head><title>Shop</title></head><body>{short}</body></html>"),
        ),
        Case::new(
            "imperva in front",
            "",
            200,
            &[HTML[0], ("X-Iinfo", "9-1"), ("Set-Cookie", "visid_incap_1=abc")],
            &format!("<html><head><title>Shop</title></head><body>{short}</body></html>"),
        ),
    ]
}

/// Applications with words of block pages in their titles, and pages with something of a vendor's
/// blocks.
pub(super) fn in_other_words() -> Vec<Case> {
    let shell = |title| {
        let body = format!(
            "<html><head><title>{title}</title><script src=/static/js/main.1a2b.js></script></head><body><div id=root></div></body></html>"
        );
        Case::new(title, "", 200, HTML, &body)
    };
    let titles = [
        "Comment devenir un être humain",
        "O que é um ser humano?",
        "Che cosa è un essere umano",
        "Это не ботинки",
        "Geen robotstofzuiger nodig",
        "Speak to a real person today",
        "Our firewall - ACME",
        "Please slow down - road safety",
        "ربات‌های خانگی",
        "หุ่นยนต์ดูดฝุ่น",
    ];
    let page = |name, status, inner: &str| {
        let body = format!("<html><head><title>Seite</title></head><body>{inner}</body></html>");
        Case::new(name, "", status, HTML, &body)
    };
    let words = words(40);
    let mut cases = vec![
        page(
            "dogs where a page is missing",
            404,
            "<p>Sorry, we couldn't find that page.</p><a href=/dogsofamazon>Meet the dogs</a>",
        ),
        page(
            "a URL that is not found",
            404,
            "<p>Die angeforderte URL wurde nicht gefunden. Bitte prüfen Sie die Adresse.</p>",
        ),
        page("a URL that is gone", 410, "<p>Die angeforderte URL wurde entfernt.</p>"),
        page("a ticket's number", 200, &format!("<p>{words}</p><p>Support ID: 12345.</p>")),
        page(
            "a link back",
            200,
            &format!("<p>{words}</p><a href=\"javascript:history.back();\">[back]</a>"),
        ),
        page("a class name", 200, &format!("<h1 class=slg-title>Slogans</h1><p>{words}</p>")),
        page("a variable", 200, &format!("<p>{words}</p><script>var utgv2=1</script>")),
        page(
            "help about a balancer",
            200,
            &format!(
                "<h1>Reading its log</h1><p>A client sees \"Request forbidden by administrative rules\" if a rule denies it.</p><p>{words}</p><p>{words}</p><p>{words}</p><p>{words}</p><p>{words}</p><p>{words}</p>"
            ),
        ),
        page(
            "a site that names its protection",
            200,
            &format!("<p>{words}</p><footer>Protected and powered by CrowdSec</footer>"),
        ),
        page(
            "news about a maker",
            200,
            &format!(
                "<h1>CrowdSec raises money</h1><p>{words}</p><a href=https://crowdsec.net/>crowdsec.net</a>"
            ),
        ),
    ];
    cases.extend(titles.map(shell));
    cases
}
