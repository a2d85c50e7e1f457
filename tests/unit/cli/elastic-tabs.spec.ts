import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import {
  type ElasticTabsOptions,
  runElasticTabs,
} from '../../../node/launch/elastic/elastic-tabs.ts'
import { Restarts } from '../../../node/restarts.ts'
import type { RankTab, TabRun, TabsOptions } from '../../../node/tabs.ts'
import { type GroupEnds, nextGroupName } from '../../../src/distributed/launcher/next-group.ts'
import { endName } from '../../../src/distributed/launcher/rank-end.ts'
import { type InjectedEnvironment, injectedName } from '../../../src/util/injected.ts'

vi.mock('../../../node/tabs.ts', () => ({
  OpenTabs: class {
    constructor(options: TabsOptions) {
      given = options
    }
    open(tab: RankTab) {
      return new Tab(tab)
    }
    abandon() {
      endAll()
    }
    ended() {
      return new Promise<void>((resolve) => {
        endAll = resolve
      })
    }
  },
}))

let given: TabsOptions
let endAll: () => void
let tabs: Tab[]

type PageFunctions = Readonly<Record<string, (words?: unknown) => unknown>>

/** A tab without a browser. */
class Tab {
  readonly received: GroupEnds[] = []
  readonly variables: Readonly<Record<string, string>>
  rank: number
  hasEnded = false
  place: Readonly<Record<string, string>> | undefined
  /** Of its page. */
  readonly #functions: PageFunctions

  constructor({ rank, constants, functions }: RankTab) {
    this.rank = rank
    this.variables = (constants![injectedName] as InjectedEnvironment).variables
    this.#functions = functions(this as unknown as TabRun) as PageFunctions
    tabs.push(this)
  }

  call(_: string, words: GroupEnds): void {
    this.received.push(words)
  }

  abandon(): void {
    this.hasEnded = true
  }

  fail(code: string, text: string): void {
    given.onFailure({ rank: this.rank, code, text }, this as unknown as TabRun)
  }

  ask(left?: string): void {
    this.place = undefined
    const asked = this.#functions[nextGroupName](left) as Promise<string>
    void asked.then((json) => {
      this.place = JSON.parse(json)
    })
  }

  endTraining(): void {
    this.#functions[nextGroupName](true)
  }

  end(): void {
    this.#functions[endName](JSON.stringify({ isOk: true }))
  }
}

beforeEach(() => {
  vi.useFakeTimers()
  tabs = []
})
afterEach(() => {
  endAll()
  vi.useRealTimers()
})

function start(min: number, max: number, maxRestarts = 3) {
  const log: string[] = []
  const said: string[] = []
  const failures: string[] = []
  let groups = 0
  void runElasticTabs({
    url: 'http://localhost/',
    switches: {},
    range: { min, max },
    restarts: new Restarts(maxRestarts),
    joinTimeoutMs: 600_000,
    nextNumber: () => groups++,
    environmentOf: ({ group, rank, worldSize }) => ({
      variables: {
        RANK: String(rank),
        WORLD_SIZE: String(worldSize),
        RESTART_COUNT: String(group),
        SLURM_PROCID: String(rank),
        MASTER_PORT: '1',
      },
      args: [],
    }),
    log: (line) => log.push(line),
    onSay: ({ rank }, stream, text) => said.push(`${rank} ${stream} ${text}`),
    onFailure: ({ rank, code, text }) => failures.push(`${rank} ${code} ${text}`),
  } as Partial<ElasticTabsOptions> as ElasticTabsOptions)
  return { log, said, failures }
}

/** A run whose first group has formed. */
function training(min: number, max: number, maxRestarts?: number) {
  const run = start(min, max, maxRestarts)
  for (const tab of tabs) tab.ask()
  return run
}

const crash = (tab: Tab) => tab.fail('worker.dead', 'its tab crashed')

test('a tab has no rank before its first group', async () => {
  start(1, 2)
  expect(tabs.map(({ variables }) => variables)).toEqual([
    { MASTER_PORT: '1' },
    { MASTER_PORT: '1' },
  ])
  for (const tab of tabs) tab.ask()
  await vi.advanceTimersByTimeAsync(0)
  expect(tabs[1]!.place).toMatchObject({ RANK: '1', WORLD_SIZE: '2', MASTER_PORT: '1' })
})

test('a lost tab is opened again, with a rank that no other tab has', () => {
  const { log, failures } = training(1, 3)
  crash(tabs[0]!)
  expect(tabs).toHaveLength(4)
  tabs[1]!.ask()
  tabs[2]!.ask()
  expect(log).toEqual([
    'rank 0: its tab crashed',
    'restart 1 of 3: its tab is opened again',
    'continuing with 2 ranks',
  ])
  expect(tabs.slice(1).map(({ rank }) => rank)).toEqual([0, 1, 2])
  expect(failures).toEqual([])
})

test('a group that fails without a lost tab is one line with its reason', () => {
  const { log } = training(1, 2)
  tabs[1]!.ask('initProcessGroup: no way to rank 0.\n  more')
  tabs[0]!.ask('initProcessGroup: no way to rank 1.')
  expect(log).toEqual([
    'rank 1 has left group 0: initProcessGroup: no way to rank 0.',
    'continuing with 2 ranks',
  ])
})

test('without a restart the others continue while MIN are left', () => {
  const { log, failures } = training(2, 3, 0)
  crash(tabs[2]!)
  expect(log).toEqual(['rank 2: its tab crashed', 'no tab is opened in its place'])
  crash(tabs[1]!)
  expect(failures).toEqual([
    'null peer.lost --elastic: 1 of at least 2 ranks left, and no restart. Raise --max-restarts, or lower MIN.',
  ])
})

test('a run of fewer than MIN ends when nobody joins in time', () => {
  const { log, failures } = training(2, 2)
  crash(tabs[0]!)
  tabs[1]!.ask()
  expect(log.at(-1)).toBe(
    '--elastic: 1 of at least 2 ranks left; waiting for another, at most 600 s',
  )
  vi.advanceTimersByTime(600_000)
  expect(failures).toEqual([
    'null peer.timeout --elastic: 1 of at least 2 ranks left, for 600 s. Raise --rdzv-conf join_timeout, or lower MIN.',
  ])
})

test('a run of fewer than MIN waits no longer once another has joined', () => {
  const { failures } = training(2, 2)
  crash(tabs[0]!)
  tabs[1]!.ask()
  tabs[2]!.ask()
  vi.advanceTimersByTime(600_000)
  expect(failures).toEqual([])
})

test('a run whose first group does not form in time ends, and says what is missing', () => {
  const { failures } = start(1, 2)
  tabs[0]!.ask()
  vi.advanceTimersByTime(600_000)
  expect(failures).toEqual([
    expect.stringContaining('not all 2 have called runElastic within 600 s'),
  ])
})

test('a tab that is lost before the first group fails the run', () => {
  const { failures } = start(1, 2)
  tabs[0]!.ask()
  crash(tabs[1]!)
  expect(failures).toEqual(['1 worker.dead its tab crashed'])
})

test('the last rank that is lost fails the run, also while another tab joins', () => {
  const { failures } = training(1, 2)
  crash(tabs[0]!)
  tabs[2]!.ask()
  crash(tabs[1]!)
  expect(failures).toEqual(['1 worker.dead its tab crashed'])
})

test('an error that would repeat fails the run at once, but not that of a tab that joins', () => {
  const { failures } = training(1, 3)
  crash(tabs[0]!)
  tabs[3]!.fail('data.missing', 'no file')
  expect(failures).toEqual([])
  tabs[1]!.fail('shape.mismatch', 'shapes differ\n at step')
  expect(failures).toEqual(['1 shape.mismatch shapes differ\n at step'])
})

test("a lost rank's stack is among what it says", () => {
  const { log, said } = training(1, 2)
  tabs[1]!.fail('', 'RangeError: no batch\n    at step')
  expect(log[0]).toBe('rank 1: RangeError: no batch')
  expect(said).toEqual(['1 stderr RangeError: no batch\n    at step'])
})

test('a rank that does not come to the next group is closed, and the others continue', () => {
  const { log } = training(1, 3)
  crash(tabs[2]!)
  tabs[1]!.ask()
  vi.advanceTimersByTime(60_000)
  expect(log).toContainEqual(
    expect.stringContaining('rank 0: runElastic: its function did not end within 60 s'),
  )
  expect(log.at(-1)).toBe('continuing with 1 rank')
  expect(tabs[1]!.rank).toBe(0)
})

test('the end of training leaves the programs their time, and waits for no newcomer', () => {
  const { failures } = training(1, 2)
  crash(tabs[1]!)
  tabs[0]!.ask()
  tabs[2]!.ask()
  tabs[0]!.endTraining()
  expect([tabs[0]!.hasEnded, tabs[2]!.hasEnded]).toEqual([false, true])
  tabs[0]!.end()
  expect(failures).toEqual([])
})

test('a tab that crashes after the end of training fails the run', () => {
  const { failures } = training(1, 2)
  for (const tab of tabs) tab.endTraining()
  crash(tabs[0]!)
  expect(failures).toEqual(['0 worker.dead its tab crashed'])
})

test('after the end of training on one rank no tab is opened for another', () => {
  const { log, failures } = training(2, 3)
  tabs[0]!.endTraining()
  crash(tabs[1]!)
  expect(log).toEqual(['rank 1: its tab crashed', 'no tab is opened in its place'])
  tabs[2]!.ask()
  expect(log.at(-1)).toBe('continuing with 1 rank')
  expect(failures).toEqual([])
})

test('a program that ends without runElastic fails a run in which others wait', () => {
  const { failures } = start(1, 2)
  tabs[0]!.end()
  tabs[1]!.ask()
  expect(failures).toEqual([expect.stringContaining('ended without runElastic')])
})

test('a lost browser fails the run', () => {
  const { failures } = training(1, 2)
  given.onFailure({ rank: null, code: 'worker.dead', text: 'browser: it crashed' })
  expect(failures).toEqual(['null worker.dead browser: it crashed'])
})
