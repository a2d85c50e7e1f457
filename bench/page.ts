import { Command } from 'commander'
import type { Browser, BrowserContext, CDPSession, Page } from 'playwright'
import { trainedDemos } from '../demos/all-demos.ts'
import type { DemoName } from '../demos/metas.ts'
import type { AdapterChoice } from '../node/chromium.ts'
import { openTrainingHost } from '../node/training-host.ts'
import { markdownTable } from '../src/util/markdown.ts'
import { openIn } from '../tests/support/open-in.ts'
import { closeAfter } from './command/close-after.ts'
import { adapterOption, countOf, jsonOption, saveOption, someOf } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'

/** `npm run bench -- page`: what drawing and state take of the main thread of the training page, while its ranks train. */

interface Flags {
  ranks: number
  seconds: number
  long: number
  demo: DemoName[]
  model?: string
  adapter: AdapterChoice
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- page')
  .description(
    "Trains on the training page in several tabs, and reads Chromium's count of each page's main-thread time, while it is visible and while it believes it is hidden.",
  )
  .option('--ranks <count>', 'number of tabs in one room', countOf(1), 4)
  .option('--seconds <count>', 'seconds measured in each state', countOf(2), 10)
  .option(
    '--long <seconds>',
    'seconds of training before the page is measured again',
    countOf(10),
    60,
  )
  .option('--demo <names>', trainedDemos.join(','), someOf(trainedDemos), [...trainedDemos])
  .option('--model <name>', 'model of the demos; by default each demo uses its own')
  .addOption(adapterOption())
  .addOption(jsonOption())
  .addOption(saveOption())

/** The main thread of a page is to have the rest of each second for itself. units: ms a second. */
const goal = 30

/** Of one page in one state. units: ms of the main thread's own time in each second. */
interface Line {
  demo: DemoName
  /** early: some 5 s after the first step; long: when training has gone on for `--long` seconds. */
  state: 'early' | 'long' | 'hidden'
  rank: number
  /** Its tab lies in front of the others. */
  isFront: boolean
  step: number
  stepsPerSec: number
  task: number
  script: number
  style: number
  layout: number
}

export async function benchPage(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const { served, browser, close } = await openTrainingHost({ adapter: flags.adapter, note })
  const { lines, browserVersion, adapter } = await closeAfter(close, async () => {
    const lines: Line[] = []
    let adapter = ''
    for (const demo of flags.demo) {
      const measured = await measureDemo(browser, served.localUrl, demo, flags)
      lines.push(...measured.lines)
      adapter = measured.adapter
    }
    return { lines, browserVersion: browser.version(), adapter }
  })
  const machine = machineLine('before the run', load)
  const software = /software/.test(adapter) ? '; **software adapter and software rendering**' : ''
  const heading = `${today()}, Chromium ${browserVersion}, ${machine}, adapter ${adapter}${software}. ${flags.ranks} ranks, ${flags.model ?? 'the models by default'}, ${flags.seconds} s in each state, long: after ${flags.long} s of training; ms of the page's main thread (its own processor time) per second. Rank 0's tab is in front.`
  const table = markdownTable(
    [
      'demo',
      'page',
      'rank',
      'from step',
      'steps/s',
      'main thread',
      'script',
      'style',
      'layout',
      'goal',
    ],
    lines.map((line) => [
      line.demo,
      line.state,
      line.isFront ? `${line.rank}, in front` : line.rank,
      Number.isNaN(line.step) ? '–' : line.step,
      Number.isNaN(line.stepsPerSec) ? '–' : line.stepsPerSec.toFixed(1),
      line.task.toFixed(1),
      line.script.toFixed(1),
      line.style.toFixed(1),
      line.layout.toFixed(1),
      `≤ ${goal}: ${line.task <= goal ? 'yes' : 'NO'}`,
    ]),
  )
  await publish(
    {
      report: `${heading}\n\n${table}\n`,
      rows: lines,
      nameParts: ['chromium', browserVersion, 'page'],
      title: 'the training page',
    },
    flags,
  )
}

/** Opens a room whose ranks train this demo, until each state has been measured. */
async function measureDemo(
  browser: Browser,
  url: string,
  demo: DemoName,
  flags: Flags,
): Promise<{ lines: Line[]; adapter: string }> {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
  await openIn('lab', context)
  return closeAfter(
    () => context.close(),
    async () => {
      const pages = await startDemo(context, url, demo, flags)
      const startedMs = performance.now()
      const [front] = pages
      await front.waitForTimeout(5000)
      const lines: Line[] = []
      for (const state of ['early', 'long', 'hidden'] as const) {
        if (state === 'long')
          await front.waitForTimeout(
            Math.max(0, 1000 * flags.long - (performance.now() - startedMs)),
          )
        if (state === 'hidden') await Promise.all(pages.map(hide))
        note(`${demo}, ${state}, for ${flags.seconds} s`)
        lines.push(...(await measure(pages, demo, state, flags.seconds)))
      }
      const adapter = await front.locator('.member .adapter').first().innerText()
      return { lines, adapter: adapter.replace(/\s+/g, ' ') }
    },
  )
}

/** Pages of a room, the maker's first and in front, all of which have made steps. */
async function startDemo(
  context: BrowserContext,
  url: string,
  demo: DemoName,
  { ranks, model }: Flags,
): Promise<Page[]> {
  const query = new URLSearchParams({
    demo,
    steps: '1000000',
    maxStepsPerSec: '0',
    ...(model && { model }),
  })
  const front = await context.newPage()
  await front.goto(`${url}?${query}`)
  const invite = front.getByLabel('Open this link')
  await invite.waitFor()
  const link = await invite.inputValue()
  const pages = [front]
  while (pages.length < ranks) {
    const page = await context.newPage()
    pages.push(page)
    await page.goto(link)
  }
  const members = front.getByRole('list', { name: 'Members' }).getByRole('listitem')
  await members.nth(ranks - 1).waitFor()
  await front.bringToFront()
  await front.getByRole('button', { name: 'Start', exact: true }).click()
  note(`${demo}: ${ranks} tabs start to train`)
  const charts = pages.map((page) => page.locator('.chart[aria-label*="at step"]'))
  await Promise.all(charts.map((chart) => chart.waitFor({ timeout: 120_000 })))
  await front.locator('#gantt svg').waitFor({ timeout: 120_000 })
  return pages
}

/** What a browser does to a page whose tab is covered: headless ones cover none. */
const hide = (page: Page) =>
  // A text: what tsx makes of functions in it calls helpers that the page does not have.
  page.evaluate(`
    Object.defineProperty(document, 'hidden', { value: true, configurable: true })
    Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true })
    document.dispatchEvent(new Event('visibilitychange'))
  `)

async function measure(
  pages: readonly Page[],
  demo: DemoName,
  state: Line['state'],
  seconds: number,
): Promise<Line[]> {
  const sessions = await Promise.all(pages.map((page) => page.context().newCDPSession(page)))
  for (const session of sessions)
    await session.send('Performance.enable', { timeDomain: 'threadTicks' })
  const before = await Promise.all(sessions.map(read))
  const beganMs = performance.now()
  const firstStep = await stepOf(pages[0], state)
  await pages[0].waitForTimeout(seconds * 1000)
  const after = await Promise.all(sessions.map(read))
  const took = (performance.now() - beganMs) / 1000
  const lastStep = await stepOf(pages[0], state)
  for (const session of sessions) await session.detach()
  return after.map((now, rank) => {
    const of = (name: string) => (1000 * (now[name] - before[rank][name])) / took
    return {
      demo,
      state,
      rank,
      isFront: rank === 0,
      step: firstStep,
      stepsPerSec: (lastStep - firstStep) / took,
      task: of('TaskDuration'),
      script: of('ScriptDuration'),
      style: of('RecalcStyleDuration'),
      layout: of('LayoutDuration'),
    }
  })
}

async function read(session: CDPSession): Promise<Record<string, number>> {
  const { metrics } = await session.send('Performance.getMetrics')
  return Object.fromEntries(metrics.map(({ name, value }) => [name, value]))
}

/** A hidden page does not draw its step; NaN for one. */
async function stepOf(page: Page, state: Line['state']): Promise<number> {
  if (state === 'hidden') return Number.NaN
  const now = await page.getByRole('progressbar').getAttribute('aria-valuenow')
  return Number(now)
}
