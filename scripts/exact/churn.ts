import type { Browser, Page } from 'playwright'
import { chromiumTabs, ownContext } from '../../node/chromium-tabs.ts'
import { dataMount } from '../../node/mounts.ts'
import type { TrainOptions } from '../../node/train/options.ts'
import { tabAddress, trainInTabs } from '../../node/train/tabs.ts'
import { launchForTraining } from '../../node/training-browser.ts'
import { openTrainingHost } from '../../node/training-host.ts'
import { formatFragment, newRoomLink } from '../../src/peer/room/secret.ts'
import { type Loss, loseTab } from '../../tests/support/lose-tab.ts'
import { Limping } from './limping.ts'
import { ordinarySteps, type Stop, Stops } from './stops.ts'

/** What happens to the tabs of a run. */
export interface World {
  readonly name: string
  /** At first. */
  readonly tabs: number
  /** The fewest changes of ranks that hold up the run: some may come together. */
  readonly minStops: number
  /** The slowest rank is to have at most this part of the fastest one's share. */
  readonly maxShare?: number
  play(room: Room): Promise<void>
}

/** Three tabs, of which random ones crash, or close, while others come. */
const killed = (random: () => number): World => ({
  name: '3 tabs, 3 killed, 3 join',
  tabs: 3,
  minStops: 4,
  async play(room) {
    const steps = Array.from({ length: 3 }, () => 0.1 + 0.7 * random()).sort((a, b) => a - b)
    for (const part of steps) {
      await room.reaches(part)
      await room.lose(random() < 0.5 ? 'crash' : 'close', random)
    }
  },
})

const manyAndOne: World = {
  name: '1 tab, 6, then 1',
  tabs: 1,
  minStops: 6,
  async play(room) {
    await room.reaches(0.1)
    const others = await room.join(5)
    await room.hasRanks(6)
    // One after the other: of tabs that are closed at once some may be gone before they say goodbye, and then a person decides.
    for (const [i, page] of others.entries()) {
      await room.takes(ordinarySteps)
      await page.close()
      await room.hasRanks(5 - i)
    }
  },
}

const slowed: World = {
  name: '3 tabs, one stopped 9/10',
  tabs: 2,
  minStops: 1,
  maxShare: 0.25,
  async play(room) {
    await room.reaches(0.05)
    const limping = await room.joinLimping()
    await room.hasRanks(3)
    await limping.begin()
    await room.reaches(0.9)
  },
}

/** `random`: numbers from 0 to 1. */
export const worldsOf = (random: () => number): readonly World[] => [
  killed(random),
  manyAndOne,
  slowed,
]

/** The tabs of one run, from outside. */
export class Room {
  /** Of the ranks that were there at the end. */
  readonly hashes = new Set<string>()
  /** Samples of a full batch by rank, where speeds decided them. */
  shares: readonly number[] | undefined
  readonly #stops = new Stops()
  #part = 0
  #step = 0
  #ranks = 0
  #wake: () => void = () => undefined
  readonly #options: TrainOptions
  readonly #url: string
  readonly #browser: Browser
  readonly #link = newRoomLink()
  readonly #limping: Limping[] = []

  constructor(options: TrainOptions, url: string, browser: Browser) {
    this.#options = options
    this.#url = url
    this.#browser = browser
  }

  /** Trains to the end while `world` is played. errors: those of the run; a world that had not been played. */
  async train(world: World, signal: AbortSignal): Promise<void> {
    const { config, switches, timeoutMs } = this.#options
    const running = trainInTabs({
      browser: chromiumTabs(this.#browser),
      url: this.#url,
      worldSize: world.tabs,
      room: this.#link,
      config,
      switches,
      timeoutMs,
      signal,
      onEvent: (event) => {
        this.#stops.take(event, performance.now())
        if (event.rank !== 0) return
        if (event.event === 'regrouped') {
          this.#ranks = event.worldSize
          this.shares = undefined
        }
        if (event.event === 'assigned') this.shares = event.samples
        if (event.event === 'step') {
          this.#step = event.step
          this.#part = event.step / event.totalSteps
        }
        this.#wake()
      },
    })
    const playing = world.play(this)
    try {
      const results = await Promise.race([running, playing.then(() => running)])
      for (const { result } of results) this.hashes.add(result.paramHash)
      await Promise.race([
        playing,
        Promise.reject(
          new Error(`${world.name}: the run ended before its last change. Use more steps.`),
        ),
      ])
    } finally {
      for (const one of this.#limping) await one.close()
    }
  }

  /** How long each change of ranks has held up the run so far. */
  get stops(): Stop[] {
    return this.#stops.all
  }

  /** The run has done that part of its steps. */
  reaches(part: number): Promise<void> {
    return this.#until(() => this.#part >= part)
  }

  /** The run does that many steps more. */
  takes(steps: number): Promise<void> {
    const end = this.#step + steps
    return this.#until(() => this.#step >= end)
  }

  hasRanks(count: number): Promise<void> {
    return this.#until(() => this.#ranks === count)
  }

  /** A random tab crashes, or is closed; another joins in its place. */
  async lose(how: Loss, random: () => number): Promise<void> {
    const pages = this.#browser.contexts().flatMap((context) => context.pages())
    const page = pages[Math.floor(random() * pages.length)]
    await loseTab(page, how)
  }

  join(count: number): Promise<Page[]> {
    return Promise.all(Array.from({ length: count }, () => this.#open(this.#browser)))
  }

  /** A tab of another browser, which can be slowed. */
  async joinLimping(): Promise<Limping> {
    const browser = await launchFor(this.#options)
    const limping = new Limping(browser)
    this.#limping.push(limping)
    await this.#open(browser)
    return limping
  }

  async #open(browser: Browser): Promise<Page> {
    const page = await (await ownContext(browser)).newPage()
    await page.exposeFunction('__tabringEvent', () => undefined)
    await page.exposeFunction('__tabringDone', (words: string) => {
      const done = JSON.parse(words)
      if (done.ok) this.hashes.add(done.result.paramHash)
    })
    await page.goto(
      tabAddress(this.#url, formatFragment(this.#link), 'join', { ...this.#options, worldSize: 1 }),
    )
    return page
  }

  async #until(isSo: () => boolean): Promise<void> {
    while (!isSo()) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }
}

const silent = () => undefined
const launchFor = ({ adapter, device, headed: isHeaded = false }: TrainOptions): Promise<Browser> =>
  launchForTraining(adapter, { device, isHeaded, timesKernels: false }, silent)

/** Trains once in each world, slowly enough for what happens there; `onWorld` gets what came of it. errors: those of the runs. */
export async function churn(
  options: TrainOptions,
  worlds: readonly World[],
  signal: AbortSignal,
  onWorld: (world: World, room: Pick<Room, 'hashes' | 'stops' | 'shares'>) => void,
): Promise<void> {
  const { adapter, device, headed: isHeaded = false, dataFolder } = options
  const mounts = dataFolder === undefined ? undefined : { [dataMount]: dataFolder }
  for (const world of worlds) {
    const host = await openTrainingHost({ adapter, device, isHeaded, note: silent, mounts })
    try {
      const { maxStepsPerSec = 10 } = options.config
      const config = { ...options.config, maxStepsPerSec }
      const room = new Room({ ...options, config }, host.served.localUrl, host.browser)
      await room.train(world, signal)
      onWorld(world, room)
    } finally {
      await host.close()
    }
  }
}
