import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import type { Browser, Locator, Page } from 'playwright'
import type { AnyDemo } from '../demos/all-demos.ts'
import type { AdapterChoice } from '../node/chromium.ts'
import { openTrainingHost } from '../node/training-host.ts'
import { openIn } from '../tests/support/open-in.ts'
import { repository } from '../tests/support/repository.ts'

/**
 * `npm run pictures`: README's pictures, taken of the built pages while they train: the first screen as an animation, the page, and each demo.
 *
 * ffmpeg makes the animation; it has to be there (`apt-get install ffmpeg`, `brew install ffmpeg`).
 */
const { out, adapter, only } = new Command('npm run pictures --')
  .description("Takes README's pictures again. Needs ffmpeg.")
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

/** Makes a demo's picture at a path. */
type Shoot = (browser: Browser, url: string, to: string) => Promise<void>

interface Trained {
  query: string
  /** What is drawn on which element before the picture. */
  draw?: { on: string; stroke: readonly (readonly [number, number])[] }
}

const demos: Readonly<Record<AnyDemo, Shoot>> = {
  playground: trained({ query: '?demo=playground&data=spiral&steps=400' }),
  digits: trained({
    query: '?demo=digits&steps=200',
    draw: { on: 'canvas.pad', stroke: three },
  }),
  picture: trained({ query: '?demo=picture&steps=300' }),
  text: trained({ query: '?demo=text&steps=150' }),
  ring: shootRing,
  strategies: shootStrategies,
  split: shootSplit,
}

function ffmpeg(args: readonly string[]): void {
  const { status, error, stderr } = spawnSync('ffmpeg', ['-y', '-loglevel', 'error', ...args])
  if (error || status !== 0)
    throw new Error(
      `ffmpeg: expected it to make a picture, got ${error?.message ?? stderr.toString()}`,
    )
}

/** The maker's page and those that followed its link, all in the room. */
async function openRoom(
  browser: Browser,
  url: string,
  count: number,
  viewport: { width: number; height: number },
): Promise<Page[]> {
  const context = await browser.newContext({ viewport })
  await openIn('lab', context)
  const maker = await context.newPage()
  await maker.goto(url)
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
async function animate(browser: Browser, url: string, to: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'tabring-pictures-'))
  const page = await browser.newPage({ viewport: { width: 1180, height: 620 } })
  try {
    await page.goto(url)
    await page.locator('.first-progress', { hasText: /step [1-9]/ }).waitFor()
    for (let frame = 0; frame < frames; frame++) {
      await page.screenshot({ path: join(folder, `${String(frame).padStart(3, '0')}.png`) })
      await page.waitForTimeout(frameMs)
    }
    const input = ['-framerate', String(framesPerSec), '-i', join(folder, '%03d.png')]
    const small =
      'scale=880:-1:flags=lanczos,split[a][b];[a]palettegen=max_colors=128[p];[b][p]paletteuse=dither=none'
    ffmpeg([...input, '-filter_complex', small, to])
  } finally {
    await page.close()
    rmSync(folder, { recursive: true })
  }
}

/** The whole page, in the middle of a run of three tabs. */
async function shootRun(browser: Browser, url: string, to: string): Promise<void> {
  const pages = await openRoom(browser, `${url}?steps=1500`, 3, { width: 1400, height: 1000 })
  await start(pages[0])
  await Promise.all(pages.map(drawn))
  await pages[0].locator('#gantt svg').waitFor({ timeout: 120_000 })
  await pages[0].waitForTimeout(8000)
  await pages[0].screenshot({ path: to, fullPage: true })
  await pages[0].context().close()
}

/** What a demo shows at the end of its run. */
function trained({ query, draw }: Trained): Shoot {
  return async (browser, url, to) => {
    const [page] = await openRoom(browser, `${url}${query}`, 1, { width: 1280, height: 860 })
    await start(page)
    await finished(page)
    if (draw) await drawOn(page.locator(draw.on), draw.stroke)
    await page.waitForTimeout(2000) // What the view asks the model for.
    await page.locator('#demo').screenshot({ path: to })
    await page.context().close()
  }
}

/** The ring in the middle of its reduce-scatter. */
async function shootRing(browser: Browser, url: string, to: string): Promise<void> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 820 } })
  await page.goto(`${url}demos/ring/`)
  await page.locator('.scrub').click({ position: { x: 90, y: 5 } })
  await page.evaluate(() => scrollTo(0, 0))
  await page.screenshot({ path: to })
  await page.close()
}

/** The four ways while they train, and the simulated stages in the middle of a step. */
async function shootSplit(browser: Browser, url: string, to: string): Promise<void> {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1300 } })
  await page.goto(`${url}demos/split/?devices=3&split=20`)
  await page.getByRole('button', { name: 'Train', exact: true }).click({ timeout: 120_000 })
  await page.locator('#pipeline .task').first().waitFor()
  await page.getByLabel('Time in the step').fill('25')
  await page.screenshot({ path: to })
  await page.close()
}

async function shootStrategies(browser: Browser, url: string, to: string): Promise<void> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 980 } })
  await page.goto(`${url}demos/strategies/?strategies=1,2,4,2alone&steps=300`)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await finished(page)
  await page.screenshot({ path: to })
  await page.close()
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
  'first-screen.gif': animate,
  'running.png': shootRun,
  ...Object.fromEntries(Object.entries(demos).map(([name, shoot]) => [`demo-${name}.png`, shoot])),
}
const chosen = Object.entries(pictures).filter(
  ([file]) => only === undefined || file.replace(/^demo-|\..*$/g, '') === only,
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
