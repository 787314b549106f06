// Crawlee on the testbed: its adaptive crawler, set up as in its guide.
import { AdaptivePlaywrightCrawler, Configuration, log } from 'crawlee';

log.setLevel(log.LEVELS.OFF);
const links = (await (await fetch(process.env.LINKS)).text()).trim().split('\n');
const pages = [];
const crawler = new AdaptivePlaywrightCrawler({
    renderingTypeDetectionRatio: 0.1,
    launchContext: { launchOptions: { executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] } },
    async requestHandler({ request, parseWithCheerio, pushData }) {
        const $ = await parseWithCheerio();
        await pushData({ url: request.url, text: $.html() });
    },
}, new Configuration({ persistStorage: false, purgeOnStart: true }));
// The pages so far count.
const late = setTimeout(() => crawler.teardown(), Number(process.env.SECONDS) * 1000);
await crawler.run(links);
clearTimeout(late);
for (const { url, text } of (await crawler.getData()).items) {
    pages.push(JSON.stringify({ url, text }));
}
for (let batch = []; pages.length > 0 || batch.length > 0; batch = []) {
    for (let size = 0; pages.length > 0 && size + pages[0].length < 900_000;) {
        size += pages[0].length;
        batch.push(pages.shift());
    }
    await fetch(process.env.PAGES, { method: 'POST', body: `${batch.join('\n')}\n` });
}
