//! Block pages as their vendors build them, in our own words if words do not matter.

use super::Case;

const HTML: &[(&str, &str)] = &[("Content-Type", "text/html; charset=UTF-8")];

/// Name, required vendor (empty: any or none), status, headers, body.
pub(super) fn all() -> Vec<Case> {
    let page = |name, vendor, status, body: &str| Case::new(name, vendor, status, HTML, body);
    let with = |name, vendor, status, header: (&'static str, &'static str), body: &str| {
        Case::new(name, vendor, status, &[HTML[0], header], body)
    };
    let mut cases = vec![
        // Cloudflare
        with(
            "managed challenge",
            "cloudflare",
            403,
            ("cf-mitigated", "challenge"),
            r#"<!DOCTYPE html><html lang="en-US"><head><title>Just a moment...</title><meta name="robots" content="noindex,nofollow"><meta http-equiv="refresh" content="360"></head><body><div class="main-wrapper" role="main"><div class="main-content"><noscript><div class="h2"><span id="challenge-error-text">Enable JavaScript and cookies to continue</span></div></noscript></div></div><script>(function(){window._cf_chl_opt = {cvId: '3',cZone: 'shop.test',cType: 'managed'};var a = document.createElement('script');a.src = '/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1?ray=8c1';}());</script></body></html>"#,
        ),
        page(
            "managed challenge without its header, status 200",
            "cloudflare",
            200,
            r#"<!DOCTYPE html><html><head><title>Just a moment...</title></head><body><h1>shop.test</h1><p>Verify you are human by completing the action below.</p><script>window._cf_chl_opt={cType:'interactive'}</script></body></html>"#,
        ),
        page(
            "challenge in German",
            "",
            403,
            r#"<html lang="de"><head><title>Nur einen Moment…</title></head><body><noscript>Aktivieren Sie JavaScript und Cookies, um fortzufahren</noscript><script src="/cdn-cgi/challenge-platform/h/g/orchestrate/chl_page/v1"></script></body></html>"#,
        ),
        page(
            "error 1020",
            "cloudflare",
            403,
            r#"<!DOCTYPE html><html lang="en-US"><head><title>Access denied | shop.test used Cloudflare to restrict access</title></head><body><div id="cf-wrapper"><div id="cf-error-details" class="p-0"><header><h1><span>Error</span><span>1020</span></h1><h2>Access denied</h2></header><section><h2>What happened?</h2><p>This website is using a security service to protect itself from online attacks.</p></section><div class="cf-error-footer">Cloudflare Ray ID: <strong>8c1f</strong> Performance &amp; security by <a href="https://www.cloudflare.com">Cloudflare</a></div></div></div></body></html>"#,
        ),
        page(
            "error 1015",
            "cloudflare",
            429,
            r#"<html><head><title>Access denied | api.test used Cloudflare to restrict access</title></head><body><div id="cf-error-details"><h1>Error 1015</h1><h2>You are being rate limited</h2><p>The owner of this website (api.test) has banned you temporarily from accessing this website.</p></div></body></html>"#,
        ),
        page(
            "block page",
            "cloudflare",
            403,
            r#"<html><head><title>Attention Required! | Cloudflare</title></head><body><div id="cf-wrapper"><div class="cf-alert cf-alert-error cf-cookie-error" id="cookie-alert" data-translate="enable_cookies">Please enable cookies.</div><div id="cf-error-details"><h1 data-translate="block_headline">Sorry, you have been blocked</h1><h2><span data-translate="unable_to_access">You are unable to access</span> shop.test</h2></div></div></body></html>"#,
        ),
        Case::new(
            "plain error code",
            "",
            403,
            &[("Content-Type", "text/plain; charset=UTF-8")],
            "error code: 1010",
        ),
        page(
            "under attack mode of 2018",
            "cloudflare",
            503,
            r#"<html><head><title>Just a moment...</title></head><body><h1><span data-translate="checking_browser">Checking your browser before accessing</span> forum.test.</h1><p data-translate="process_is_automatic">This process is automatic. Your browser will redirect to your requested content shortly.</p><form id="challenge-form" action="/cdn-cgi/l/chk_jschl"><input type="hidden" name="jschl_vc" value="1"><input type="hidden" id="jschl-answer" name="jschl_answer"></form><p>DDoS protection by Cloudflare</p></body></html>"#,
        ),
        // DataDome
        with(
            "interstitial",
            "datadome",
            403,
            ("x-dd-b", "1"),
            r#"<html lang="en"><head><title>shop.test</title><style>#cmsg{animation: A 1.5s;}</style></head><body style="margin:0"><p id="cmsg">Please enable JS and disable any ad blocker</p><script data-cfasync="false">var dd={'rt':'i','cid':'AHr','hsh':'2211','b':118,'s':17434,'host':'geo.captcha-delivery.com'}</script><script data-cfasync="false" src="https://ct.captcha-delivery.com/i.js"></script></body></html>"#,
        ),
        page(
            "captcha with escaped host, status 200",
            "datadome",
            200,
            r#"<html><head><title>You have been blocked</title></head><body><script>var dd={'rt':'c','cid':'AHr','hsh':'77','t':'fe','host':'geo.captcha\x2ddelivery.com'}</script><p>Please enable JS and disable any ad blocker</p></body></html>"#,
        ),
        page(
            "hosted captcha frame",
            "datadome",
            403,
            r#"<html><head><title>shop.test</title></head><body><iframe src="https://geo.captcha-delivery.com/captcha/?initialCid=AHr&amp;hash=9" title="DataDome CAPTCHA" width="100%" height="100%"></iframe></body></html>"#,
        ),
        // HUMAN
        page(
            "press and hold",
            "perimeterx",
            403,
            r#"<!DOCTYPE html><html lang="en"><head><meta name="description" content="px-captcha"><title>Access to this page has been denied</title></head><body><script>window._pxVid = '';window._pxUuid = '1b';window._pxAppId = 'PXabc';window._pxHostUrl = '/abc/xhr';</script><script>var s=document.createElement('script');s.src='https://captcha.px-cdn.net/PXabc/captcha.js?a=c&m=0';</script></body></html>"#,
        ),
        page(
            "robot or human",
            "",
            200,
            r#"<html><head><title>Robot or human?</title></head><body><div id="px-captcha"></div><h1>Activate and hold the button to confirm that you're human. Thank You!</h1><p>Try a different method</p></body></html>"#,
        ),
        page(
            "older page",
            "perimeterx",
            403,
            r#"<html><head><title>Access to this page has been denied.</title></head><body><h1>Please verify you are a human</h1><p>Access to this page has been denied because we believe you are using automation tools to browse the website.</p><p>This may happen as a result of the following: Javascript is disabled or blocked by an extension</p><p>Reference ID: #1b2c</p><p>Powered by PerimeterX, Inc.</p></body></html>"#,
        ),
        page(
            "site's own page around the widget",
            "perimeterx",
            403,
            r#"<html><head><title>Site Maintenance</title></head><body><h1>Please verify you are a human</h1><div id="px-captcha"></div><script src="/abc/captcha/captcha.js?a=c&u=1&v=&m=0"></script></body></html>"#,
        ),
        // Akamai
        page(
            "access denied with entities",
            "akamai",
            403,
            r#"<HTML><HEAD>
<TITLE>Access Denied</TITLE>
</HEAD><BODY>
<H1>Access Denied</H1>
You don't have permission to access "http&#58;&#47;&#47;www&#46;air&#46;test&#47;" on this server.<P>
Reference&#32;&#35;18&#46;6d7b1202&#46;1700000000&#46;12ab34cd
<P>https&#58;&#47;&#47;errors&#46;edgesuite&#46;net&#47;18&#46;6d7b1202&#46;1700000000&#46;12ab34cd</P>
</BODY>
</HTML>"#,
        ),
        page(
            "access denied, status 200",
            "akamai",
            200,
            "<HTML><HEAD><TITLE>Access Denied</TITLE></HEAD><BODY><H1>Access Denied</H1> You don't have permission to access this page on this server.<P> Reference #18.deadbeef.1700000000.1a2b3c </BODY></HTML>",
        ),
        page(
            "behavioural challenge",
            "akamai",
            200,
            r#"<html><head><title></title></head><body><iframe id="sec-cpt-if" class="sec-if-cpt" provider="crypto" data-duration=5 src="about:blank"></iframe><div id="sec-if-container"></div><script src="/xyz/sec_cpt.js"></script><script>var x='/_sec/verify?provider=crypto'</script></body></html>"#,
        ),
        page(
            "verify by refresh",
            "akamai",
            200,
            r#"<html><head><meta http-equiv="refresh" content="5; URL='/?bm-verify=AAQAAAAJ_____7'" /><title>&nbsp;</title></head><body><script>var i=1700000000;var j=i+Number("31"+"415");var xhr=new XMLHttpRequest();xhr.open("POST","/_sec/verify?provider=interstitial",false);xhr.send(JSON.stringify({"bm-verify":"AAQ","pow":j}));</script></body></html>"#,
        ),
        // Imperva
        page(
            "incident frame",
            "imperva",
            200,
            r#"<html style="height:100%"><head><META NAME="ROBOTS" CONTENT="NOINDEX, NOFOLLOW"><meta name="viewport" content="initial-scale=1.0"><script type="text/javascript" src="/_Incapsula_Resource?SWJIYLWA=719d34d31c8e3a6e6fffd425f7e032f3"></script></head><body style="margin:0px;height:100%"><iframe id="main-iframe" src="/_Incapsula_Resource?SWUDNSAI=31&xinfo=9-1-0&incident_id=87-30&edet=12&cinfo=04" frameborder=0 width="100%" height="100%">Request unsuccessful. Incapsula incident ID: 87000-30000</iframe></body></html>"#,
        ),
        page(
            "error 15",
            "imperva",
            403,
            r#"<html><head><title>Error</title></head><body><h1>Access Denied</h1><h2>Error 15</h2><p>This request was blocked by the security rules</p><p>Your IP: 192.0.2.1, Proxy ID: 1, Incident ID: 87-3</p><p>Powered by Imperva</p></body></html>"#,
        ),
        page(
            "pardon our interruption",
            "imperva",
            200,
            r#"<!DOCTYPE html><html><head><title>Pardon Our Interruption</title><script>var isIncapsula = true</script></head><body><h1>Pardon Our Interruption</h1><p>As you were browsing something about your browser made us think you were a bot. There are a few reasons this might happen:</p><ul><li>You're a power user moving through this website with super-human speed.</li><li>You've disabled cookies in your web browser.</li><li>A third-party browser plugin, such as Ghostery or NoScript, is preventing JavaScript from running.</li></ul></body></html>"#,
        ),
        page(
            "reese shell",
            "imperva",
            200,
            r#"<html><head><noscript><title>Pardon Our Interruption</title></noscript><meta name="robots" content="noindex, nofollow"><script>window.onProtectionInitialized = function(p){ reeseSkipExpirationCheck = true; };</script><script src="/Which-Pleyare-vnter-arre-Duke-Yon-Beaut-to" async defer></script></head><body></body></html>"#,
        ),
        // AWS
        with(
            "challenge",
            "aws_waf",
            202,
            ("x-amzn-waf-action", "challenge"),
            r#"<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title></title><script>window.awsWafCookieDomainList = [];window.gokuProps = {"key":"AQ","iv":"EQ","context":"zz"};</script><script src="https://1a.2b.eu-west-1.token.awswaf.com/1a/challenge.js"></script></head><body><div id="challenge-container"></div><script>AwsWafIntegration.saveReferrer();AwsWafIntegration.checkForceRefresh();</script><noscript><h1>JavaScript is disabled</h1>In order to continue, we need to verify that you're not a robot. This requires JavaScript. Enable JavaScript and then reload the page.</noscript></body></html>"#,
        ),
        page(
            "captcha without its header",
            "",
            405,
            r#"<!DOCTYPE html><html lang="en"><head><title>Human Verification</title><script src="https://1a.edge.captcha.awswaf.com/1a/captcha.js"></script></head><body><div id="captcha-container"></div><script>CaptchaScript.renderCaptcha(c, onToken, false, "GET")</script></body></html>"#,
        ),
        page(
            "cloudfront",
            "cloudfront",
            403,
            r#"<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01 Transitional//EN"><HTML><HEAD><TITLE>ERROR: The request could not be satisfied</TITLE></HEAD><BODY><H1>403 ERROR</H1><H2>The request could not be satisfied.</H2><HR>Request blocked. We can't connect to the server for this app or website at this time. There might be too much traffic or a configuration error.<PRE>Generated by cloudfront (CloudFront) Request ID: abc==</PRE></BODY></HTML>"#,
        ),
        // Kasada, Vercel, Fastly, SiteGround
        page(
            "kasada",
            "kasada",
            429,
            r#"<html><head></head><body><script>window.KPSDK={};KPSDK.now=typeof performance!=='undefined'&&performance.now?performance.now.bind(performance):Date.now.bind(Date);KPSDK.start=KPSDK.now();</script><script src="/149e9513-01fa-4fb0-aad4-566afd725d1b/2d206a39-8ed7-437e-a3be-862e0f06eea3/ips.js?KP_UIDz=0"></script></body></html>"#,
        ),
        page(
            "vercel",
            "vercel",
            429,
            r#"<!DOCTYPE html><html lang="en" data-astro-cid-x><head><title>Vercel Security Checkpoint</title></head><body><div id="root"><p id="header-text">We're verifying your browser</p><p><a href="https://vercel.link/security-checkpoint">Website owner? Click here to fix</a></p></div><noscript>Enable JavaScript to continue</noscript></body></html>"#,
        ),
        page(
            "fastly",
            "fastly",
            200,
            r#"<!DOCTYPE html><html><head><title>Client Challenge</title><link rel="stylesheet" href="/_fs-ch-1T1wmsGaOgGaSxcX/assets/styles.css"></head><body><div id="loading-error" role="alert">A required part of this site couldn't load. This may be due to a browser extension, network issues, or browser settings.</div><script src="/_fs-ch-1T1wmsGaOgGaSxcX/script.js"></script></body></html>"#,
        ),
        page(
            "siteground",
            "siteground",
            202,
            r#"<html><head><link rel="icon" href="data:;"><meta http-equiv="refresh" content="0;/.well-known/sgcaptcha/?r=%2F&y=ipc:192.0.2.1:1700000000.1"></meta></head></html>"#,
        ),
        // Sucuri, DDoS-Guard, Anubis and similar products
        page(
            "sucuri cookie script",
            "sucuri",
            307,
            r#"<html><title>You are being redirected...</title><noscript>Javascript is required. Please enable javascript before you are allowed to see this page.</noscript><script>var s={},u,c,U,r,i,l=0,a,e=eval,w=String.fromCharCode,sucuri_cloudproxy_js='',S='cz0i';</script></html>"#,
        ),
        page(
            "sucuri block",
            "sucuri",
            403,
            r#"<html><head><title>Sucuri WebSite Firewall - Access Denied</title></head><body><h1>Access Denied - Sucuri Website Firewall</h1><p>If you are the site owner (or you manage this site), please whitelist your IP or if you think this block is an error please open a support ticket. cloudproxy@sucuri.net</p></body></html>"#,
        ),
        page(
            "ddos-guard",
            "ddos_guard",
            403,
            r#"<!DOCTYPE html><html><head><title>DDoS-Guard</title></head><body data-ddg-origin="true" data-ddg-l10n="true"><div id="title"><h1>Checking your browser before accessing forum.test</h1></div><p id="description">Please wait a few seconds. Once this check is complete, the website will open automatically</p><script src="/.well-known/ddos-guard/js-challenge/index.js"></script></body></html>"#,
        ),
        page(
            "anubis",
            "anubis",
            200,
            r#"<!doctype html><html lang="en"><head><title>Making sure you&#39;re not a bot!</title><link rel="stylesheet" href="/.within.website/x/xess/xess.min.css"><script id="anubis_version" type="application/json">"v1.21"</script><script id="anubis_challenge" type="application/json">{"rules":{"algorithm":"fast","difficulty":4}}</script></head><body><main><h1>Making sure you&#39;re not a bot!</h1><p id="status">Loading...</p><details><summary>Why am I seeing this?</summary><p>You are seeing this because the administrator of this website has set up Anubis to protect the server against the scourge of AI companies aggressively scraping websites.</p></details></main></body></html>"#,
        ),
        page(
            "imunify360",
            "imunify360",
            200,
            r#"<!DOCTYPE html><html><head><title>One moment, please...</title><meta http-equiv="refresh" content="5"></head><body><h1>Please wait while your request is being verified...</h1><form id="wsidchk-form" style="display:none;" action="/z0f76a1d14fd21a8fb5fd0d03e0fdc3d3cedae52f" method="GET"><input type="hidden" id="wsidchk" name="wsidchk"/></form></body></html>"#,
        ),
        page(
            "wordfence",
            "wordfence",
            503,
            r#"<html><head><title>Your access to this site has been limited</title></head><body><h1>Your access to this site has been limited by the site owner</h1><p>Your access to this service has been limited. (HTTP response code 503)</p><p>If you think you have been blocked in error, contact the owner of this site for assistance.</p><p>Generated by Wordfence at Mon, 1 Jan 2024 0:00:00 GMT.</p></body></html>"#,
        ),
        // F5, Radware, Reblaze, Qrator
        page(
            "asm",
            "f5",
            200,
            "<html><head><title>Request Rejected</title></head><body>The requested URL was rejected. Please consult with your administrator.<br><br>Your support ID is: 1234567890123456789<br><br><a href='javascript:history.back();'>[Go Back]</a></body></html>",
        ),
        page(
            "bot defence",
            "f5",
            200,
            r#"<!DOCTYPE html><html><head><meta http-equiv="Pragma" content="no-cache"/><script type="text/javascript">(function(){window["bobcmn"] = "111110111101010200000002";window.Zah=!!window.Zah;})();</script><script type="text/javascript" src="/TSPD/08a1?type=9"></script><noscript>Please enable JavaScript to view the page content.<br/>Your support ID is: 1234567890.</noscript></head><body></body></html>"#,
        ),
        page(
            "radware",
            "radware",
            200,
            r#"<html><head><title>Radware Captcha Page</title></head><body><p>We apologize for the inconvenience... ...but your activity and behavior on this site made us think that you are a bot.</p><p>Please solve this CAPTCHA in helping us understand your behavior to grant access</p><div class="h-captcha"></div><p>You reached this page when trying to access https://shop.test from 192.0.2.1</p></body></html>"#,
        ),
        page(
            "reblaze",
            "reblaze",
            200,
            r#"<html><head><meta charset="utf-8"></head><body><script src="/c3650cdf-216a-4ba2-80b0-9d6c540b105e58d2670b-ea0f-484e-b88c-0e2c1499ec9bd71e4b42"></script><script>window.rbzns={bereshit: "1", seed: "abc", storage: "3"};winsocks();</script></body></html>"#,
        ),
        page(
            "qrator",
            "qrator",
            401,
            r#"<!DOCTYPE html><html lang="ru"><head><meta charset="utf-8"><script src="/__qrator/qauth_utm_v2_d9118.js"></script></head><body></body></html>"#,
        ),
        // Blocks of large sites
        page(
            "google sorry",
            "google",
            429,
            r#"<html><head><title>https://www.google.com/search?q=x</title></head><body><form id="captcha-form" action="index" method="post"><script src="https://www.google.com/recaptcha/enterprise.js" async defer></script><div id="recaptcha" class="g-recaptcha" data-sitekey="6L"></div></form><div><b>About this page</b><br><br>Our systems have detected unusual traffic from your computer network. This page checks to see if it&#39;s really you sending the requests, and not a robot.</div></body></html>"#,
        ),
        page(
            "amazon",
            "amazon",
            200,
            r#"<!DOCTYPE html><html><head><title dir="ltr">Amazon.com</title></head><body><!-- To discuss automated access to Amazon data please contact api-services-support@amazon.com. --><h4>Click the button below to continue shopping</h4><form method="get" action="/errors/validateCaptcha" name=""><input type=hidden name="amzn" value="x" /><button type="submit">Continue shopping</button></form><a href="/gp/help">Conditions of Use</a></body></html>"#,
        ),
        page(
            "linkedin",
            "linkedin",
            999,
            r#"<html><head><script type="text/javascript">window.onload = function() {var trkCode = "bf"; var refUrl = ""; window.location.href = "https://" + domain + "/authwall?trk=" + trkCode + "&sessionRedirect=";}</script></head></html>"#,
        ),
        page(
            "yandex",
            "yandex",
            200,
            r#"<!doctype html><html lang="ru"><head><title>Вы не робот?</title></head><body><form method="POST" action="/checkcaptcha?key=1" id="checkbox-captcha-form"><span>Подтвердите, что запросы отправляли вы, а не робот</span><div class="CheckboxCaptcha"></div></form><p>Нам очень жаль, но запросы с вашего устройства похожи на автоматические.</p></body></html>"#,
        ),
        page(
            "baidu",
            "baidu",
            200,
            r#"<!DOCTYPE html><html><head><title>百度安全验证</title></head><body><div class="timeout">网络不给力，请稍后重试</div><script src="https://wappass.baidu.com/static/captcha/tuxing.html"></script></body></html>"#,
        ),
        // China
        page(
            "acw_sc__v2",
            "alibaba",
            200,
            r#"<html><script>var arg1='C9F1A8B7';document.write(""+"");function setCookie(n,v){document.cookie=n+"="+v}function reload(x){setCookie("acw_sc__v2",x);document.location.reload();}</script></html>"#,
        ),
        page(
            "punish",
            "alibaba",
            200,
            r#"<!DOCTYPE html><html><head><title>验证码拦截</title></head><body><script src="//g.alicdn.com/sd/punish/waf_block.html"></script><script>window._config_ = {"action":"captcha","url":"/_____tmd_____/punish?x5secdata=xf&x5step=1"};</script></body></html>"#,
        ),
        page(
            "aliyun waf 405",
            "",
            405,
            r#"<!doctype html><html lang="zh-cn"><head><meta charset="utf-8" /><title>405</title></head><body><div class="main"><img src="https://errors.aliyun.com/images/TB1.png"/><div id="block_message">很抱歉，由于您访问的URL有可能对网站造成安全威胁，您的访问被阻断。</div><div>您的请求ID是: <strong>0a3b</strong></div></div></body></html>"#,
        ),
        page(
            "jsl clearance",
            "",
            521,
            r#"<script>document.cookie=('_')+('_')+('j')+('s')+('l')+('_')+('c')+('l')+('earance')+('=')+(-~1+'')+('7')+'; max-age=3600; path=/';location.href=location.pathname+location.search</script>"#,
        ),
        page(
            "edgeone",
            "",
            200,
            r#"<!DOCTYPE html><html><head><meta charset="utf-8"><title>Tencent Cloud EdgeOne</title></head><body><h1>The access is restricted by security policy</h1><p>您的请求已被站点的安全策略拦截</p><p>EO-LOG-UUID: 1234</p></body></html>"#,
        ),
        page(
            "safeline",
            "",
            403,
            r#"<!DOCTYPE html><html lang="zh"><head><title>403 Forbidden</title></head><body><h1>请求存在威胁，已被拦截</h1><p>安全检测能力由 雷池 WAF 提供</p></body></html>"#,
        ),
        page(
            "geetest block",
            "geetest",
            200,
            r#"<html><head><title>Verify</title><script src="https://static.geetest.com/v4/gt4.js"></script></head><body><div id="captcha"></div><script>initGeetest4({captchaId:'x'},function(c){c.appendTo('#captcha')})</script></body></html>"#,
        ),
        page(
            "arkose block",
            "",
            200,
            r#"<html><head><title>Verification</title><script src="https://client-api.arkoselabs.com/v2/1A/api.js" data-callback="setup"></script></head><body><h1>Please verify</h1><div id="arkose"></div></body></html>"#,
        ),
        page(
            "hcaptcha block",
            "",
            200,
            r#"<html><head><title>forum.test</title><script src="https://js.hcaptcha.com/1/api.js"></script></head><body><p>One more step</p><form method=post action="/"><div class="h-captcha" data-sitekey="1"></div></form></body></html>"#,
        ),
        page(
            "recaptcha block",
            "",
            200,
            r#"<html><head><title>shop.test</title><script src="https://www.google.com/recaptcha/api.js"></script></head><body><form id=f method=post><p>Please tick the box to go on.</p><div class="g-recaptcha" data-sitekey="6L" data-callback="go"></div></form></body></html>"#,
        ),
        page(
            "stackpath",
            "stackpath",
            200,
            r#"<html><head><title>Site verification | StackPath</title></head><body><p>This website is using a security service to protect itself from online attacks. The service requires full cookie support in order to view this website.</p><script src="/sbbi/?sbbpg=sbbShell&sbbsv=1"></script></body></html>"#,
        ),
        with(
            "azure",
            "azure",
            403,
            ("x-azure-ref", "0abc"),
            r#"<!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0 Transitional//EN'><html><head><meta content='text/html; charset=utf-8' http-equiv='content-type'/></head><body id='bd'><div>The request is blocked.</div><div>0abcRef A: 12 Ref B: 34</div></body></html>"#,
        ),
        page(
            "modsecurity",
            "",
            406,
            "<head><title>Not Acceptable!</title></head><body><h1>Not Acceptable!</h1><p>An appropriate representation of the requested resource could not be found on this server. This error was generated by Mod_Security.</p></body></html>",
        ),
        page(
            "barracuda",
            "",
            403,
            "<html><head><title>Access Denied</title></head><body>You have been blocked by the web application firewall of Barracuda Networks. Event ID: 1a2b</body></html>",
        ),
    ];
    // Vendors and authors that no rule names, in different wordings.
    cases.extend([
        page("cookie and reload", "", 200, r#"<html><body><script>var d=new Date();d.setTime(d.getTime()+36e5);document.cookie="hcheck=9f;expires="+d.toUTCString()+";path=/";window.location.reload();</script></body></html>"#),
        page("bitninja", "", 403, "<html><head><title>Waiting for the redirectiron...</title></head><body><h1>Security check by BitNinja.IO</h1><p>Your IP is greylisted. Please solve the captcha to remove it.</p></body></html>"),
        page("ninjafirewall", "", 200, "<html><head><title>NinjaFirewall: 403 Forbidden</title></head><body><h1>Sorry 192.0.2.1, your request cannot be processed.</h1><p>For security reasons, it was blocked and logged.</p><p>NinjaFirewall</p></body></html>"),
        page("godaddy", "", 403, "<html><head><title>GoDaddy Security - Access Denied</title></head><body><h1>Access Denied - GoDaddy Website Firewall</h1><p>Block reason: access from your country was disabled by the administrator.</p></body></html>"),
        page("ticket shop", "", 200, "<html><head><title>Your Browsing Activity Has Been Paused</title></head><body><h1>Your Browsing Activity Has Been Paused</h1><p>We've detected unusual behavior on either your network or your browser. For security, please solve the captcha to go on.</p></body></html>"),
        page("own page of a shop", "", 200, "<html><head><title>Verification needed - shop.test</title></head><body><h2>Hold on a second</h2><p>To keep shop.test safe we need to check that you are not a robot.</p><p>Please confirm you are not a robot.</p><button>Continue</button></body></html>"),
        page("spanish", "", 200, "<html lang=es><head><title>tienda.test</title></head><body><h1>Un paso más</h1><p>Para continuar, confirma que no eres un robot.</p><div id=reto></div></body></html>"),
        page("french", "", 403, "<html lang=fr><head><title>Vérification de sécurité</title></head><body><p>Nous vérifions votre navigateur. Veuillez patienter.</p></body></html>"),
        page("portuguese", "", 200, "<html lang=pt><head><title>loja.test</title></head><body><p>Detectamos tráfego incomum vindo da sua rede. Resolva o captcha para continuar.</p></body></html>"),
        page("japanese", "", 200, "<html lang=ja><head><title>確認</title></head><body><p>お使いのネットワークから異常なトラフィックが検出されました。ロボットではないことを確認してください。</p></body></html>"),
        page("proof of work", "", 200, r#"<html><head><title>Loading</title></head><body><p>Checking that you are human, one moment.</p><script>async function solve(challenge, difficulty){let nonce=0;for(;;){const h=await crypto.subtle.digest("SHA-256",new TextEncoder().encode(challenge+nonce));if(ok(h,difficulty))break;nonce++}document.cookie="pow="+nonce;location.reload()}</script></body></html>"#),
        page("refresh to a challenge", "", 200, r#"<html><head><meta http-equiv="refresh" content="0; url=/security-check?back=%2Fnews"></head><body></body></html>"#),
        page("rate limit with status 200", "", 200, "<html><head><title>Too Many Requests</title></head><body><h1>Too many requests</h1><p>We are rate limiting requests from this network. Try again in a while.</p></body></html>"),
        page("squid", "", 403, "<html><head><title>ERROR: The requested URL could not be retrieved</title></head><body><h1>ERROR</h1><p>Access Denied. Access control configuration prevents your request from being allowed at this time.</p></body></html>"),
        page("plain nginx 403", "", 403, "<html><head><title>403 Forbidden</title></head><body><center><h1>403 Forbidden</h1></center><hr><center>nginx</center></body></html>"),
        page("automated browsing", "", 200, "<html><head><title>Access restricted</title></head><body><p>Your access to this site appears automated. If you are a person, contact us with this reference: 77-12.</p></body></html>"),
        page("slider", "", 200, r#"<html><head><title>滑动验证页面</title></head><body><div id="nc"></div><p>请拖动滑块完成验证</p></body></html>"#),
        page("safeline", "safeline", 468, r#"<html><head><title>安全检测</title></head><body><div id="slg-box">正在检测客户端环境</div><script src="/.safeline/static/main.js"></script></body></html>"#),
        page("error page with dogs", "amazon", 503, r#"<html><head><title>Sorry! Something went wrong!</title></head><body><a href="/ref=cs_503_logo"><img src="logo.png"></a><a href="/dogsofamazon"><img src="dog.jpg"></a></body></html>"#),
        page("akamai in german", "akamai", 200, "<html><head><title>Fehler</title></head><body><h1>Kein Zugriff</h1><p>Referenz #18.4d3a1602.1712345678.1a2b3c4d</p></body></html>"),
        page("asks and comes again", "", 200, r#"<html><head><meta name="robots" content="noindex"><title>Shield</title></head><body><p>Hang on, you will be forwarded.</p><script>fetch('/.v?q='+Date.now()).then(function(){location.reload()})</script></body></html>"#),
        page("cookie by brackets", "", 200, r#"<html><head><title></title><script>function s(n,v){document["cookie"]=n+"="+v}s("t","9f");window["location"]["href"]=window["location"]["href"];</script></head><body></body></html>"#),
        page("vietnamese", "", 200, "<html lang=vi><head><title>Xác minh</title></head><body><p>Vui lòng xác nhận bạn không phải là robot.</p></body></html>"),
        page("indonesian", "", 200, "<html lang=id><head><title>situs.test</title></head><body><p>Pastikan bahwa Anda bukan robot untuk melanjutkan.</p></body></html>"),
        page("korean limit", "", 200, "<html lang=ko><head><title>안내</title></head><body><p>비정상적인 접속이 감지되어 서비스 이용이 제한되었습니다.</p></body></html>"),
        page("captcha in a site's own frame", "", 200, r#"<html><head><title>Human verification - Answers</title></head><body><nav><a href=/>Home</a> <a href=/q>Questions</a> <a href=/t>Tags</a> <a href=/u>Users</a> <a href=/j>Jobs</a> <a href=/h>Help</a></nav><p>We noticed unusual activity from your network.</p><form><div class="g-recaptcha" data-sitekey="6L"></div></form></body></html>"#),
        page("reload by a module, with a captcha's script", "", 200, r#"<html><head><title>x</title><script type=module>document.cookie="a=1";location.reload()</script><script src="https://www.google.com/recaptcha/api.js"></script></head><body></body></html>"#),
        page("picture with a field of its own name", "", 200, r#"<html><head><title>Code</title></head><body><img src="/captcha.php?1"><form><input type=text name=user_captcha><input type=submit></form></body></html>"#),
        page("proof of work in a module", "", 200, r#"<html><head><title>Checking</title></head><body><p id=s>A check</p><script type="module">const h=async s=>crypto.subtle.digest('SHA-256',new TextEncoder().encode(s));let i=0;while(!ok(await h('77'+i)))i++;document.cookie='pass='+i;location.reload()</script></body></html>"#),
        page("big-ip in spanish", "f5", 200, "<html><head><title>Aviso</title></head><body>La URL solicitada ha sido rechazada.<br>Su número: 5512345678901234567<br><a href='javascript:history.back();'>[Volver]</a></body></html>"),
        page("netscaler", "citrix", 200, "<html><head><title>Notice</title></head><body><p>NS Transaction ID: 17</p><p>AppFW Session ID: ab</p></body></html>"),
        page("form made and sent", "", 200, r#"<html><head><title>Wait</title><meta name="robots" content="noindex"></head><body><div id=w></div><script>var f=document.createElement("form");f.action="/a";document.body.appendChild(f);f.submit()</script></body></html>"#),
        page("nothing but a packed script", "", 200, r#"<html><head><script>eval(atob("ZG9jdW1lbnQuY29va2llPSdhPTEn"))</script></head><body></body></html>"#),
        page("frame of the site's own", "", 200, r#"<html><head><title>shop.test</title><meta name="robots" content="noindex"></head><body><iframe src="https://bot.shop.test/challenge?r=1"></iframe></body></html>"#),
        page("dutch", "", 200, "<html lang=nl><head><title>Even controleren</title></head><body><p>We kijken even of je geen robot bent. Daarna ga je vanzelf door.</p></body></html>"),
        page("letters in a picture", "", 200, r#"<html><head><title>Image</title></head><body><p>Type the letters you see in the picture to go on.</p><img src="securimage_show.php?1"><form><input name=code></form></body></html>"#),
        page("image captcha of the site's own", "", 200, r#"<html><head><title>Please enter the code</title></head><body><form><img src="/captcha.php?1"><input name="code"><input type=submit></form></body></html>"#),
        page("haproxy's refusal", "haproxy", 403, "<html><body><h1>403 Forbidden</h1>\nRequest forbidden by administrative rules.\n</body></html>\n"),
        page("haproxy's refusal behind another status", "haproxy", 200, "<html><head><title>Oops</title></head><body><p>Request forbidden by administrative rules.</p></body></html>"),
        page("crowdsec's ban", "crowdsec", 403, "<html><head><title>CrowdSec Ban</title></head><body><h1>CrowdSec Access Forbidden</h1><p>You are unable to visit the website.</p><p>This security check has been powered by <a href='https://crowdsec.net/'>CrowdSec</a></p></body></html>"),
        page("crowdsec's captcha", "crowdsec", 200, "<html><head><title>CrowdSec Captcha</title></head><body><h1>CrowdSec Captcha</h1><form method=post><div class=g-recaptcha></div></form><p>This security check has been powered by <a href='https://crowdsec.net/'>CrowdSec</a></p></body></html>"),
        page("crowdsec's ban in words of the operator", "crowdsec", 403, "<html><head><title>Zutritt nicht möglich</title></head><body><p>Ihre Adresse steht auf einer Liste.</p><footer><small>blocked, powered by CrowdSec</small></footer></body></html>"),
    ]);
    cases
}
