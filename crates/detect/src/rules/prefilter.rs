//! Prefilter of a set of literals: a few short pieces ("cores") that are rare in ordinary pages.
//! Each literal contains one.
//!
//! A search for the cores finds every candidate offset of a literal, with far fewer strings than
//! there are literals.
//!
//! Invariants: the choice of cores affects the speed of a search, never its result.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::LazyLock;

/// Length of a core, in bytes.
pub(crate) const CORE: usize = 4;

/// The core of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CorePosition {
    /// Index of the core.
    pub(crate) core: usize,
    /// Offset of the core in the literal.
    pub(crate) at: usize,
}

/// Chooses cores for `literals`, each of at least [`CORE`] bytes. Returns the cores, and the core
/// of each literal.
///
/// The choice is greedy: the next core has the lowest cost per literal without a core. The cost of
/// a core is its frequency in ordinary pages, plus a constant for searching it at all.
pub(crate) fn choose(literals: &[&[u8]]) -> (Vec<[u8; CORE]>, Vec<CorePosition>) {
    let mut candidates = candidates(literals);
    let mut in_literal: Vec<Vec<usize>> = vec![Vec::new(); literals.len()];
    for (index, candidate) in candidates.iter().enumerate() {
        candidate.of.iter().for_each(|number| in_literal[*number].push(index));
    }
    // The cost of a candidate per literal only rises while others are chosen. So a candidate that
    // comes first with its present cost is the cheapest, though others stand in the queue with an
    // earlier cost.
    let mut queue: BinaryHeap<_> = candidates
        .iter()
        .enumerate()
        .map(|(index, candidate)| Reverse((candidate.cost_per_literal(), index)))
        .collect();
    let mut cores = Vec::new();
    let mut places: Vec<Option<CorePosition>> = vec![None; literals.len()];
    while let Some(Reverse((cost, index))) = queue.pop() {
        let now = candidates[index].cost_per_literal();
        if cost != now {
            if candidates[index].left > 0 {
                queue.push(Reverse((now, index)));
            }
            continue;
        }
        let core = candidates[index].bytes;
        for number in std::mem::take(&mut candidates[index].of) {
            if places[number].is_none() {
                let at = literals[number]
                    .windows(CORE)
                    .position(|piece| piece == core)
                    .unwrap_or_default();
                places[number] = Some(CorePosition { core: cores.len(), at });
                in_literal[number].iter().for_each(|index| candidates[*index].left -= 1);
            }
        }
        cores.push(core);
    }
    (cores, places.into_iter().flatten().collect())
}

/// A candidate for a core.
struct CoreCandidate {
    bytes: [u8; CORE],
    /// The literals that contain it.
    of: Vec<usize>,
    /// The number of those without a core.
    left: usize,
    cost: f32,
}

impl CoreCandidate {
    /// Returns its cost per literal without a core, as a number to compare.
    fn cost_per_literal(&self) -> u32 {
        // The bits of positive floats have the same order as the floats.
        (self.cost / self.left as f32).to_bits()
    }
}

/// Returns the pieces of all literals, in their order.
fn candidates(literals: &[&[u8]]) -> Vec<CoreCandidate> {
    // Integers are compared faster than bytes, and have the same order.
    let mut pieces: Vec<(u32, usize)> = literals
        .iter()
        .enumerate()
        .flat_map(|(number, literal)| {
            pieces_of(literal).map(move |piece| (u32::from_be_bytes(piece), number))
        })
        .collect();
    pieces.sort_unstable();
    pieces.dedup();
    let same = pieces.chunk_by(|one, next| one.0 == next.0);
    same.filter_map(|holders| {
        let bytes = holders.first()?.0.to_be_bytes();
        let of: Vec<usize> = holders.iter().map(|(_, number)| *number).collect();
        Some(CoreCandidate { bytes, left: of.len(), of, cost: NEVER_MET + weight(bytes) })
    })
    .collect()
}

/// Cost of a core that never occurs.
const NEVER_MET: f32 = 60_000.0;
/// Factor by which pieces of [`ORDINARY`] are more frequent.
const ORDINARILY: f32 = 200.0;

/// Returns all pieces of a literal, in the order of the literal.
fn pieces_of(literal: &[u8]) -> impl Iterator<Item = [u8; CORE]> {
    literal.windows(CORE).filter_map(|piece| piece.first_chunk().copied())
}

/// The pieces of [`ORDINARY`], in their order.
static ORDINARY_PIECES: LazyLock<Vec<[u8; CORE]>> = LazyLock::new(|| {
    let text: Vec<u8> =
        ORDINARY.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }).collect();
    let mut pieces: Vec<_> = pieces_of(&text).collect();
    pieces.sort_unstable();
    pieces.dedup();
    pieces
});

/// Returns the relative frequency of a piece in ordinary pages, without a unit.
fn weight(piece: [u8; CORE]) -> f32 {
    let sum: f32 = piece.iter().map(|byte| commonness(*byte)).sum();
    (sum / 4.0).exp2()
        * if ORDINARY_PIECES.binary_search(&piece).is_ok() { ORDINARILY } else { 1.0 }
}

/// Returns how common a byte is in lower-case HTML, on a rough logarithmic scale.
fn commonness(byte: u8) -> f32 {
    match byte {
        b' ' | b'e' | b't' | b'a' | b's' | b'i' | b'n' | b'r' | b'o' | b'l' => 10.0,
        b'c' | b'd' | b'p' | b'm' | b'h' | b'u' | b'"' | b'<' | b'>' | b'/' | b'=' => 9.0,
        b'-' | b'f' | b'g' | b'b' | b'v' | b'y' | b'.' | b'0'..=b'9' => 8.0,
        b'w' | b'k' | b'x' | b';' | b':' | b',' | b'\n' => 7.0,
        b'(' | b')' | b'\'' | b'&' | b'{' | b'}' => 6.0,
        b'j' | b'q' | b'z' | b'#' | b'_' => 4.0,
        b'[' | b']' | b'+' | b'?' | b'!' | b'%' | b'$' => 3.0,
        _ => 1.0,
    }
}

/// A sample of ordinary pages in lower case: common markup, styles, scripts and words.
const ORDINARY: &str = r##"<!doctype html>
<html lang="en" class="no-js"><head><meta charset="utf-8"><meta http-equiv="content-type" content="text/html; charset=utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="description" content="this is the home page of our site">
<meta property="og:image" content="https://www.example.com/images/header.png"><title>home page - search results for articles</title>
<link rel="stylesheet" type="text/css" href="/assets/css/main.min.css?ver=1.0"><link rel="shortcut icon" href="/favicon.ico">
<link rel="alternate" type="application/rss+xml"><link rel="canonical" href="https://www.example.org/"><link rel="preload" as="font">
<style>body{margin:0;padding:0;font-family:arial,sans-serif;font-size:14px;line-height:1.5;background-color:#fff;color:#333}
.container{max-width:1200px;margin:0 auto;display:block;position:relative;overflow:hidden;text-align:center;border:1px solid}
@media (min-width:768px){.header .menu a:hover{display:inline-block;transform:translate(-50%);transition:all .3s ease}}</style>
<script async src="https://cdn.example.com/static/js/jquery.min.js"></script><script type="text/javascript">window.datalayer=[];
(function(w,d,s){var f=d.getelementsbytagname(s)[0],j=d.createelement(s);j.async=true;f.parentnode.insertbefore(j,f);})(window,document,'script');
if(typeof x!=="undefined"){return false}else{this.options=null;function init(e){var t=e.target;t.addeventlistener("click",function(){})}}
document.getelementbyid("content").style.display="none";location.href="/index.php?id=1&amp;page=2";settimeout(function(){},100);
</script><script type="application/ld+json">{"@context":"https://schema.org","@type":"article","name":"title","url":"https:\/\/"}</script>
</head><body class="home page-template default"><noscript><iframe src="https://www.googletagmanager.com/ns.html"></iframe></noscript>
<header id="header" class="site-header"><nav role="navigation"><ul class="nav menu"><li class="menu-item"><a href="/about">about us</a></li>
<li><a href="#" class="dropdown-toggle" data-toggle="dropdown" aria-expanded="false" aria-label="menu">products</a></li></ul></nav></header>
<main id="main" class="content"><article class="post"><h1 class="entry-title">the title of the post</h1><div class="row"><div class="col-md-6">
<p>there are many people who have been in this country for more than ten years, and some of them would like to know what the first thing is
that you should do when it comes to their information. which other words are the most common ones? about the world, from time to time, with all.</p>
<img src="https://images.example.com/uploads/2020/01/photo-300x200.jpg" alt="picture" width="300" height="200" loading="lazy" srcset="1x">
<span class="date"><time datetime="2020-01-01">january 1, 2020</time></span> <strong>bold</strong> <em>text</em><br /><a href="#top">read more</a>
<svg xmlns="http://www.w3.org/2000/svg" viewbox="0 0 24 24"><path d="m12 2c6.48 2 2 6.48 2 12s4.48" fill="none" stroke="currentcolor"/></svg>
<table><tbody><tr><td>one</td><th>two</th></tr></tbody></table><form action="/search" method="get"><input type="text" name="q" placeholder="search">
<button type="submit" class="btn btn-primary" value="send">submit</button><label for="email">email</label><select><option value="1">option</option>
</select></form></div></div></article><section class="section"><h2>related articles</h2><h3>latest news</h3></section><aside class="sidebar widget">
</aside></main><footer class="footer"><p>&copy; 2020 company name. all rights reserved. privacy policy and terms of use. contact us.</p>
<!-- end of footer --></footer></body></html>
<script>!function(e,t){"object"==typeof exports&&"undefined"!=typeof module?module.exports=t():"function"==typeof define&&define.amd?define(t)
:e.lib=t()}(this,function(){"use strict";var n=object.prototype.hasownproperty,r=array.isarray,i=n.length;for(var o=0;o<i.length;o++){try{
return new promise(function(e,t){e(null)})}catch(a){throw new error("could not load the module: "+a.message)}}window.onload=function(){
console.log("loaded",json.stringify({code:0,number:1,string:"value",error:!1,default:!0,status:200,data:[],items:[],user:null}))};
var s=document.queryselector(".main-content"),u=math.random(),c=parseint(u,10),l=new date().gettime();s.innerhtml+="<b>"+c.tostring(16)+"</b>";
s.classlist.add("is-active");s.setattribute("data-index",l);fetch(url).then(function(e){return e.json()});window.localstorage.getitem("theme");
navigator.useragent.indexof("mobile")>-1;event.preventdefault();element.removechild(node);x.apply(this,arguments);y.replace(/[^a-z0-9]/g,"");
import("./chunk.js");if(!t||null===t.value||void 0===t)switch(t.type){case"text":break;default:continue}};</script>
<code class="language-rust">let code = vec![1, 2, 3];</code><pre>fn main() { println!("{}", code); }</pre><kbd>ctrl</kbd><wbr>
we use cookies to improve your experience. sign in or create a free account. subscribe to our newsletter. download the app. terms and conditions.
customer service and support, shopping cart, free shipping, price, number of items, order now, log in, register, language, english, international.
comments, reply, share on facebook, twitter, instagram, youtube, linkedin; published by the author, editor, photo: getty. next page, previous page.
the document describes how to configure the network and the security of the application, the access control list, the block size and the limits.
"##;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_literal_has_a_core_and_most_share_one() {
        let literals: Vec<&[u8]> = vec![
            b"g-recaptcha",
            b"h-captcha",
            b"/captcha/image",
            b"abcd",
            b"_cf_chl_opt",
            b"window._cf_chl_opt",
        ];
        let (cores, places) = choose(&literals);
        assert_eq!(places.len(), literals.len());
        for (literal, place) in literals.iter().zip(&places) {
            assert_eq!(literal[place.at..place.at + CORE], cores[place.core], "{literal:?}");
        }
        assert_eq!(cores.len(), 3, "one for the captchas, one for the object, one for the rest");
    }

    #[test]
    fn pieces_of_ordinary_pages_are_avoided_as_cores() {
        let (cores, _) = choose(&[b"class=\"zq7_"]);
        assert!(!ORDINARY_PIECES.contains(&cores[0]), "{cores:?}");
    }

    #[test]
    fn each_core_is_the_cheapest_for_the_literals_without_one() {
        let words =
            ORDINARY.split_whitespace().map(str::as_bytes).filter(|word| word.len() >= CORE);
        let mut left: Vec<&[u8]> = words.step_by(4).collect();
        let (cores, _) = choose(&left);
        assert!(cores.len() > 20, "{}", cores.len());
        for core in cores {
            let all = candidates(&left);
            let chosen = all
                .iter()
                .find(|candidate| candidate.bytes == core)
                .map(CoreCandidate::cost_per_literal);
            assert_eq!(chosen, all.iter().map(CoreCandidate::cost_per_literal).min(), "{core:?}");
            left.retain(|literal| !pieces_of(literal).any(|piece| piece == core));
        }
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn the_same_literals_have_the_same_cores() {
        let literals: Vec<&[u8]> =
            vec![b"marker-one", b"marker-two", b"challenge-form", b"/challenge/"];
        assert_eq!(choose(&literals).0, choose(&literals).0);
        assert_eq!(choose(&[]).0.len(), 0);
    }
}
