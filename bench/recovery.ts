import { Command } from 'commander'
import type { Page } from 'playwright'
import { iceWithoutRoutePermissions } from '../node/chromium.ts'
import { openTrainingHost } from '../node/training-host.ts'
import { markdownTable } from '../src/util/markdown.ts'
import { loseTab } from '../tests/support/lose-tab.ts'
import { openInOwnProcess } from '../tests/support/own-process.ts'
import { closeAfter } from './command/close-after.ts'
import { countOf, jsonOption, saveOption } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { median, spread } from './statistics.ts'

/** `npm run bench -- recovery`: how long the others make no step after a tab of the training page is lost. */

interface Flags {
  rounds: number
  against: string | undefined
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- recovery')
  .description(
    'Three tabs of three browser profiles train on the page. One is closed, crashes or is stopped, or the host crashes; the row is the longest time without a new step on another page after that. On the software adapter.',
  )
  .option('--rounds <count>', 'losses of each kind', countOf(1), 5)
  .option(
    '--against <address>',
    'a server with the page of another commit, begun by its npm start: both in turns',
  )
  .addOption(jsonOption())
  .addOption(saveOption())

const losses = {
  'closed tab': (_host: Page, tab: Tab) => tab.page.close(),
  'crashed tab': (_host: Page, tab: Tab) => loseTab(tab.page, 'crash'),
  'frozen tab': async (_host: Page, tab: Tab) => tab.signal('SIGSTOP'),
  'crashed host': (host: Page) => loseTab(host, 'crash'),
} satisfies Record<string, (host: Page, tab: Tab) => Promise<void>>
type LossName = keyof typeof losses
type Tab = Awaited<ReturnType<typeof openInOwnProcess>>

/** After a loss a page is watched so long, and until its next step: a frozen tab is left out after 8 s. units: ms. */
const watchMs = 15_000
const patient = { timeout: 240_000 }
const query = '?demo=digits&steps=100000&maxStepsPerSec=20'

/** units: ms. */
interface Row {
  readonly build: string
  readonly loss: LossName
  readonly load: string
  readonly stepMs: number
  /** The longest time without a new step. */
  readonly standsMs: number
}

export async function benchRecovery(argv: readonly string[]): Promise<void> {
  const { rounds, against, ...flags } = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const host = await openTrainingHost({ adapter: 'software', note })
  const { browser, served } = host
  const builds = { here: served.localUrl, ...(against && { against }) }

  async function lose(url: string, loss: LossName): Promise<Pick<Row, 'stepMs' | 'standsMs'>> {
    const contexts = await Promise.all(
      [0, 1, 2].map(() => browser.newContext({ permissions: [...iceWithoutRoutePermissions] })),
    )
    const open = async (at: number, address: string) => {
      const page = await contexts[at].newPage()
      await page.goto(address)
      return page
    }
    let tab: Tab | undefined
    try {
      const maker = await open(0, new URL(query, url).href)
      const lists = (count: number) =>
        maker.locator(`ul[aria-label=Members] li:nth-child(${count})`).waitFor(patient)
      await lists(1)
      const link = await maker.getByLabel('Open this link').inputValue()
      const other = await open(1, link)
      await lists(2)
      tab = await openInOwnProcess(browser, () => open(2, link))
      await lists(3)
      await maker.getByRole('button', { name: 'Start', exact: true }).click(patient)
      await other.waitForFunction(
        () =>
          Number.parseInt(document.querySelector('.progress-words')?.textContent ?? '', 10) > 30,
        undefined,
        patient,
      )
      // A tab behind another draws a frame a second.
      await other.bringToFront()
      const watch = await other.evaluateHandle(watchSteps)
      await new Promise((resolve) => setTimeout(resolve, 3000))
      const { stepMs } = await watch.evaluate((steps) => steps.stop())
      await losses[loss](maker, tab)
      await new Promise((resolve) => setTimeout(resolve, watchMs))
      const { longestMs } = await watch.evaluate((steps) => steps.stop())
      return { stepMs, standsMs: longestMs }
    } finally {
      tab?.signal('SIGKILL')
      await Promise.all(contexts.map((context) => context.close()))
    }
  }

  await closeAfter(host.close, async () => {
    const rows: Row[] = []
    for (let round = 0; round < rounds; round++)
      for (const loss of Object.keys(losses) as LossName[]) {
        // Each round begins with the other build.
        const named = Object.entries(builds)
        for (const [build, url] of round % 2 ? named.reverse() : named) {
          const row = { build, loss, load: loadNow(), ...(await lose(url, loss)) }
          note(JSON.stringify(row))
          rows.push(row)
        }
      }
    const cells = Object.keys(losses).map((loss) => [
      loss,
      ...Object.keys(builds).map((build) => {
        const own = rows.filter((row) => row.build === build && row.loss === loss)
        const times = own.map(({ standsMs }) => standsMs / 1000)
        const [min, max] = spread(times).map((time) => time.toFixed(1))
        return `${median(times).toFixed(1)} s (${min} to ${max}); a step took ${median(own.map(({ stepMs }) => stepMs)).toFixed(0)} ms`
      }),
    ])
    const table = markdownTable(['lost', ...Object.keys(builds)], cells)
    const heading = `${today()}, Chromium ${browser.version()}, **software adapter**, ${machineLine('before the run', load)}. Three tabs of three profiles train the digits' MLP, at most 20 steps a second. The longest time without a new step on another page after the loss: median and spread of ${rounds}.`
    const nameParts = ['chromium', browser.version(), 'recovery']
    await publish({ report: `${heading}\n\n${table}\n`, rows, nameParts, title: 'recovery' }, flags)
  })
}

/** In the page: the times between steps that it shows. `stop` gives those since it was called last, up to the next step, or a minute more. */
function watchSteps() {
  let newest = 0
  let gaps: number[] = []
  let lastMs = performance.now()
  const waiting: (() => void)[] = []
  new MutationObserver(() => {
    const text = document.querySelector('.progress-words')?.textContent ?? ''
    const step = Number.parseInt(text, 10)
    if (!(step > newest)) return
    const now = performance.now()
    // A page may draw several steps at once.
    gaps.push(now - lastMs, ...Array(newest ? step - newest - 1 : 0).fill(0))
    newest = step
    lastMs = now
    for (const resolve of waiting.splice(0)) resolve()
  }).observe(document.body, { subtree: true, childList: true, characterData: true })
  return {
    async stop() {
      await new Promise<void>((resolve) => {
        waiting.push(resolve)
        setTimeout(resolve, 60_000)
      })
      const all = [...gaps, performance.now() - lastMs]
      gaps = []
      const sum = all.reduce((total, gap) => total + gap, 0)
      return { longestMs: Math.max(...all), stepMs: sum / all.length }
    },
  }
}
