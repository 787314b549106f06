//! Pages in an encoding other than UTF-8, declared in the header, in the page, or by a byte order
//! mark.

use encoding_rs::{SHIFT_JIS, WINDOWS_1251};

use super::escape_html;

/// The encoding of a page, and where it is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Charset {
    /// Russian text in windows-1251, declared by the `Content-Type` header only.
    Windows1251ByHeader,
    /// Japanese text in Shift_JIS, declared by a `meta` element only.
    ShiftJisByMeta,
    /// Russian text in UTF-16, little endian, declared by its byte order mark only.
    Utf16ByMark,
}

impl Charset {
    /// Returns the `Content-Type` of the page.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Windows1251ByHeader => "text/html; charset=windows-1251",
            Self::ShiftJisByMeta | Self::Utf16ByMark => "text/html",
        }
    }

    /// Returns the encoded page at `path`.
    pub(crate) fn page(self, path: &str) -> Vec<u8> {
        match self {
            Self::Windows1251ByHeader => {
                WINDOWS_1251.encode(&page("ru", "", RUSSIAN, path)).0.into_owned()
            }
            Self::ShiftJisByMeta => SHIFT_JIS
                .encode(&page("ja", "<meta charset=\"shift_jis\">\n", JAPANESE, path))
                .0
                .into_owned(),
            Self::Utf16ByMark => {
                let mut bytes = vec![0xff, 0xfe];
                bytes.extend(
                    page("ru", "", RUSSIAN, path).encode_utf16().flat_map(u16::to_le_bytes),
                );
                bytes
            }
        }
    }
}

/// A title and paragraphs.
type Prose = (&'static str, &'static [&'static str]);

fn page(lang: &str, meta: &str, (title, paragraphs): Prose, path: &str) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"{lang}\">\n<head>\n{meta}<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p><code>{}</code></p>\n",
        escape_html(path)
    );
    for paragraph in paragraphs {
        out.push_str(&format!("<p>{paragraph}</p>\n"));
    }
    out.push_str(
        "<p><a href=\"/\">1</a> <a href=\"/2\">2</a> <a href=\"/3\">3</a> <a href=\"/4\">4</a></p>\n</body>\n</html>\n",
    );
    out
}

const RUSSIAN: Prose = (
    "Записки о старой гавани",
    &[
        "Гавань построили там, где река становится широкой и спокойной. Сначала здесь стояли только три дома и сарай для лодок, \
         а по утрам над водой висел такой густой туман, что рыбаки перекликались, чтобы не столкнуться.",
        "Через двадцать лет у причала появился маяк. Смотритель каждый вечер записывал в толстую тетрадь погоду, число парусов \
         и цену на соль; эти тетради сохранились, и по ним можно узнать о городе больше, чем из любой книги.",
        "Последняя запись сделана весной: лёд сошёл раньше срока, первая лодка вышла в море, и смотритель отметил, что ветер был \
         тёплый, а чайки вернулись на крышу мельницы.",
    ],
);

const JAPANESE: Prose = (
    "古い港の記録",
    &[
        "この港は、川の流れがゆるやかになる場所に作られました。はじめは三軒の家と小さな舟小屋があるだけで、朝になると深い霧が水の上に広がり、\
         漁師たちは声をかけ合いながら舟を進めたといいます。",
        "二十年後、桟橋の先に灯台が建てられました。灯台守は毎晩、天気と帆の数と塩の値段を厚い帳面に書きとめました。その帳面は今も図書館に残って\
         いて、町の歴史を知るための大切な手がかりになっています。",
        "最後の頁は春の日の記録です。氷はいつもより早くとけ、最初の舟が海へ出て、かもめが風車の屋根に戻ってきた、と書かれています。港を訪れる人は、\
         その頁の写しを資料室で見ることができます。",
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_survives_its_encoding() {
        let bytes = Charset::Windows1251ByHeader.page("/a");
        let (text, _, lossy) = WINDOWS_1251.decode(&bytes);
        assert!(!lossy && text.contains("чайки вернулись") && !text.contains("&#"));
        let bytes = Charset::ShiftJisByMeta.page("/a");
        let (text, _, lossy) = SHIFT_JIS.decode(&bytes);
        assert!(!lossy && text.contains("灯台守") && !text.contains("&#"));
        assert!(std::str::from_utf8(&bytes).is_err());
        let bytes = Charset::Utf16ByMark.page("/a");
        let (text, encoding, lossy) = encoding_rs::UTF_8.decode(&bytes);
        assert_eq!(encoding, encoding_rs::UTF_16LE);
        assert!(!lossy && text.contains("первая лодка"));
    }
}
