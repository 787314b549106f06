// Crawlee's adaptive crawler, set up as in its guide, on a list of links. Writes its pages as JSON lines.
import { appendFileSync, readFileSync } from 'node:fs';
import { AdaptivePlaywrightCrawler, Configuration, log } from 'crawlee';

log.setLevel(log.LEVELS.OFF);
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
await crawler.run(readFileSync(process.env.LINKS, 'utf8').trim().split('\n'));
clearTimeout(late);
for (const page of (await crawler.getData()).items) {
    appendFileSync(process.env.PAGES, `${JSON.stringify(page)}\n`);
}
process.exit(0);
