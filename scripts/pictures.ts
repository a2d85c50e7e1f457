import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import type { Browser, BrowserContextOptions, Locator, Page } from 'playwright'
import type { AnyDemo } from '../demos/all-demos.ts'
import type { AdapterChoice } from '../node/chromium.ts'
import { openTrainingHost } from '../node/training-host.ts'
import type { PageView } from '../src/ui/page/page-view.ts'
import { openIn } from '../tests/support/open-in.ts'
import { repository } from '../tests/support/repository.ts'

/**
 * `npm run pictures`: the pictures of README, docs and cards, taken of the built pages while they train: the first screen as an animation, the page,
 * and each demo in light and in dark colours.
 *
 * ffmpeg makes WebP of them; it has to be there (`apt-get install ffmpeg`, `brew install ffmpeg`).
 */
const { out, adapter, only } = new Command('npm run pictures --')
  .description('Takes the pictures of README, docs and cards again. Needs ffmpeg.')
  .option('--out <folder>', 'output folder', join(repository, 'docs', 'images'))
  .option('--adapter <name>', 'auto or software', 'auto')
  .option('--only <name>', 'only this picture: first-screen, running, or the name of a demo')
  .parse()
  .opts<{ out: string; adapter: AdapterChoice; only?: string }>()

/** Of the animation. */
const frames = 64
const framesPerSec = 5
/** Between two frames while it trains. */
const frameMs = 260

/** A 3. */
const three = [
  [0.3, 0.22],
  [0.5, 0.15],
  [0.68, 0.28],
  [0.5, 0.47],
  [0.7, 0.65],
  [0.52, 0.84],
  [0.28, 0.76],
] as const

/** Makes a picture: `name` is its path without `.webp`. */
type Shoot = (browser: Browser, url: string, name: string) => Promise<void>

/** A page that shows what a demo's card does. */
interface Posed {
  readonly page: Page
  /** The picture begins where this element does, and is as wide. */
  readonly at: string
}

/** Of cards: 16 to 10, as wide as the widest is on a screen of two device pixels a CSS pixel. */
const cardWidth = 800
const cardHeight = 500
/** Room around what a card shows. units: CSS pixels. */
const margin = 12

interface Trained {
  query: string
  at: string
  /** Of the window. */
  width: number
  /** What is drawn on which element before the picture. */
  draw?: { on: string; stroke: readonly (readonly [number, number])[] }
}

type Pose = (browser: Browser, url: string) => Promise<Posed>

const demos: Readonly<Record<AnyDemo, Pose>> = {
  playground: trained({
    query: '?demo=playground&data=spiral&steps=400',
    at: '.playground',
    width: 800,
  }),
  digits: trained({
    query: '?demo=digits&steps=200',
    at: '.drawn',
    width: 690,
    draw: { on: 'canvas.pad', stroke: three },
  }),
  picture: trained({ query: '?demo=picture&steps=300', at: '.pictures', width: 690 }),
  text: trained({ query: '?demo=text&steps=150', at: '.samples', width: 690 }),
  ring: poseRing,
  strategies: poseStrategies,
  split: poseSplit,
}

function ffmpeg(args: readonly string[]): void {
  const { status, error, stderr } = spawnSync('ffmpeg', ['-y', '-loglevel', 'error', ...args])
  if (error || status !== 0)
    throw new Error(
      `ffmpeg: expected it to make a picture, got ${error?.message ?? stderr.toString()}`,
    )
}

/** Options of ffmpeg for WebP: half the bytes of this PNG and less, and no loss that is seen. */
const webp = ['-c:v', 'libwebp', '-quality', '82', '-compression_level', '6']

/** Runs `work` with a folder that is gone afterwards. */
async function withFolder(work: (folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'tabring-pictures-'))
  try {
    await work(folder)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** The same moment of a demo, in light as `<name>.webp` and in dark as `<name>-dark.webp`. */
const cardOf =
  (pose: Pose): Shoot =>
  (browser, url, name) =>
    withFolder(async (folder) => {
      const { page, at } = await pose(browser, url)
      await page.evaluate(() => scrollTo(0, 0)) // Where boxes are counted from.
      const box = (await page.locator(at).first().boundingBox())!
      const width = box.width + 2 * margin
      const height = (width * cardHeight) / cardWidth
      const clip = { x: box.x - margin, y: box.y - margin, width, height }
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        await page.waitForTimeout(500) // Charts draw themselves again.
        const path = join(folder, `${colorScheme}.png`)
        await page.screenshot({ path, clip, fullPage: true })
        const to = `${name}${colorScheme === 'dark' ? '-dark' : ''}.webp`
        ffmpeg(['-i', path, '-vf', `scale=${cardWidth}:${cardHeight}:flags=lanczos`, ...webp, to])
      }
      await page.context().close()
    })

/** The maker's page and those that followed its link, all in the room. */
async function openRoom(
  browser: Browser,
  url: string,
  view: PageView,
  count: number,
  options: BrowserContextOptions,
): Promise<Page[]> {
  const context = await browser.newContext(options)
  await openIn(view, context)
  const maker = await context.newPage()
  await maker.goto(url)
  if (count === 1) return [maker]
  const invite = maker.getByLabel('Open this link')
  await invite.waitFor()
  const link = await invite.inputValue()
  const pages = [maker]
  while (pages.length < count) {
    const page = await context.newPage()
    await page.goto(link)
    pages.push(page)
  }
  const members = maker.getByRole('list', { name: 'Members' }).getByRole('listitem')
  await members.nth(count - 1).waitFor()
  return pages
}

const start = (page: Page) => page.getByRole('button', { name: 'Start', exact: true }).click()
const drawn = (page: Page) => page.locator('.chart[aria-label*="at step"]').waitFor()
const finished = (page: Page) =>
  page
    .locator('.status h2 [role=status]')
    .filter({ hasText: 'Finished' })
    .waitFor({ timeout: 120_000 })

/** The first screen, from its first step until a rank has been lost and another has joined. */
const animate: Shoot = (browser, url, name) =>
  withFolder(async (folder) => {
    const page = await browser.newPage({ viewport: { width: 1180, height: 620 } })
    await page.goto(url)
    await page.locator('.first-progress', { hasText: /step [1-9]/ }).waitFor()
    for (let frame = 0; frame < frames; frame++) {
      await page.screenshot({ path: join(folder, `${String(frame).padStart(3, '0')}.png`) })
      await page.waitForTimeout(frameMs)
    }
    await page.close()
    const input = ['-framerate', String(framesPerSec), '-i', join(folder, '%03d.png')]
    const moving = [...webp, '-c:v', 'libwebp_anim', '-loop', '0']
    ffmpeg([...input, '-vf', 'scale=880:-1:flags=lanczos', ...moving, `${name}.webp`])
  })

/** The Lab, in the middle of a run of three tabs. */
const shootRun: Shoot = (browser, url, name) =>
  withFolder(async (folder) => {
    const viewport = { width: 1400, height: 1000 }
    const pages = await openRoom(browser, `${url}?steps=1500`, 'lab', 3, { viewport })
    await start(pages[0])
    await Promise.all(pages.map(drawn))
    await pages[0].locator('#gantt svg').waitFor({ timeout: 120_000 })
    await pages[0].waitForTimeout(8000)
    const path = join(folder, 'running.png')
    await pages[0].screenshot({ path, fullPage: true })
    ffmpeg(['-i', path, ...webp, `${name}.webp`])
    await pages[0].context().close()
  })

/** Twice as fine as what is kept of it. */
const posed = (width: number, height: number) => ({
  viewport: { width, height },
  deviceScaleFactor: 2,
})

/** What a demo shows at the end of its run. */
function trained({ query, at, width, draw }: Trained): Pose {
  return async (browser, url) => {
    const [page] = await openRoom(browser, `${url}${query}`, 'lab', 1, posed(width, 860))
    await start(page)
    await finished(page)
    if (draw) await drawOn(page.locator(draw.on), draw.stroke)
    await page.waitForTimeout(2000) // What the view asks the model for.
    return { page, at }
  }
}

/** The ring in the middle of its reduce-scatter. */
async function poseRing(browser: Browser, url: string): Promise<Posed> {
  const page = await browser.newPage(posed(640, 820))
  await page.goto(`${url}demos/ring/`)
  await page.locator('.scrub').click({ position: { x: 90, y: 5 } })
  return { page, at: '#links' }
}

/** The simulated stages in the middle of a step. */
async function poseSplit(browser: Browser, url: string): Promise<Posed> {
  const page = await browser.newPage(posed(1100, 1300))
  await page.goto(`${url}demos/split/?devices=3&split=20`)
  await page.getByLabel('Time in the step').fill('25')
  await page.getByLabel('Time in the step').blur()
  return { page, at: '#simulated' }
}

async function poseStrategies(browser: Browser, url: string): Promise<Posed> {
  const page = await browser.newPage(posed(1100, 900))
  await page.goto(`${url}demos/strategies/?strategies=1,2,4,2alone&steps=300`)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await finished(page)
  return { page, at: '#by-samples' }
}

/** A line through places from 0 to 1 across an element. */
async function drawOn(pad: Locator, stroke: readonly (readonly [number, number])[]): Promise<void> {
  const { x, y, width, height } = (await pad.boundingBox())!
  const { mouse } = pad.page()
  const at = ([across, down]: readonly [number, number]) =>
    [x + across * width, y + down * height] as const
  await mouse.move(...at(stroke[0]!))
  await mouse.down()
  for (const place of stroke.slice(1)) await mouse.move(...at(place), { steps: 8 })
  await mouse.up()
}

/** All pictures, by the names of their files. */
const pictures: Readonly<Record<string, Shoot>> = {
  'first-screen': animate,
  running: shootRun,
  ...Object.fromEntries(
    Object.entries(demos).map(([name, pose]) => [`demo-${name}`, cardOf(pose)]),
  ),
}
const chosen = Object.entries(pictures).filter(
  ([file]) => only === undefined || file.replace('demo-', '') === only,
)
if (chosen.length === 0)
  throw new Error(
    `--only: no picture "${only}". Choose one of first-screen, running, ${Object.keys(demos).join(', ')}.`,
  )

mkdirSync(out, { recursive: true })
const { served, browser, close } = await openTrainingHost({ adapter, note: console.log })
try {
  for (const [file, shoot] of chosen) await shoot(browser, served.localUrl, join(out, file))
} finally {
  await close()
}
