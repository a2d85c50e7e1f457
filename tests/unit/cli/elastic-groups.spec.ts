import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { ElasticGroups, type Place } from '../../../node/launch/elastic/elastic-groups.ts'
import type { GroupEnds } from '../../../src/distributed/launcher/next-group.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

class Tab {
  readonly received: GroupEnds[] = []
  place: Place | undefined

  constructor(readonly name: string) {}

  call(_: string, words: GroupEnds): void {
    this.received.push(words)
  }
}

function started(min: number, max: number) {
  const log: string[] = []
  let number = 0
  const groups = new ElasticGroups<Tab>({
    min,
    max,
    answerMs: 60_000,
    nextNumber: () => number++,
    onFormed: ({ group }, tabs) =>
      log.push(`group ${group}: ${tabs.map(({ name }) => name).join()}`),
    onLeft: (why) => log.push(why),
    onEndedEarly: () => log.push('ended early'),
    onSilent: (tab) => {
      log.push(`silent: ${tab.name}`)
      groups.lost(tab, 'silent')
    },
    onDone: (newcomers) => log.push(`done without ${newcomers.map(({ name }) => name).join()}`),
  })
  const ask = (tab: Tab, left?: string) => {
    tab.place = undefined
    void groups.ask(tab, left).then((place) => {
      tab.place = place
    })
  }
  const open = (name: string) => {
    const tab = new Tab(name)
    groups.opened(tab)
    return tab
  }
  return { groups, log, ask, open }
}

/** A run whose first group has these tabs. */
function training(min: number, names: readonly string[]) {
  const run = started(min, names.length)
  const tabs = names.map((name) => run.open(name))
  for (const tab of tabs) run.ask(tab)
  return { ...run, tabs }
}

test('ElasticGroups begins when all tabs have asked', async () => {
  const { log, ask, open } = started(1, 2)
  const [a, b] = [open('a'), open('b')]
  ask(b)
  expect(log).toEqual([])
  ask(a)
  expect(log).toEqual(['group 0: a,b'])
  await Promise.resolve()
  expect([a.place, b.place]).toEqual([
    { group: 0, rank: 0, worldSize: 2 },
    { group: 0, rank: 1, worldSize: 2 },
  ])
})

test('ElasticGroups continues without a lost rank, and sends the others why their group ends', async () => {
  const { groups, log, ask, tabs } = training(1, ['a', 'b', 'c'])
  const [a, b, c] = tabs
  groups.lost(a, 'rank 0: crashed')
  const words = { group: 0, kind: 'lost', why: 'rank 0: crashed' }
  expect([b.received, c.received]).toEqual([[words], [words]])
  ask(c)
  expect(log).toEqual(['group 0: a,b,c'])
  ask(b)
  expect(log).toEqual(['group 0: a,b,c', 'group 1: b,c'])
  await Promise.resolve()
  expect(b.place).toEqual({ group: 1, rank: 0, worldSize: 2 })
})

test('ElasticGroups lets a newcomer in at the next commit, after the ranks that have the state', () => {
  const { log, ask, open, tabs } = training(1, ['a', 'b'])
  const late = open('late')
  expect(tabs[0].received).toEqual([])
  ask(late)
  expect(tabs.map(({ received }) => received)).toEqual([
    [{ group: 0, kind: 'planned', why: 'ranks join' }],
    [{ group: 0, kind: 'planned', why: 'ranks join' }],
  ])
  for (const tab of tabs) ask(tab)
  // The first to ask has not broken the group.
  expect(tabs[1].received).toHaveLength(1)
  expect(log.at(-1)).toBe('group 1: a,b,late')
})

test('ElasticGroups ends a group at once that waits for its commit when a rank is lost', () => {
  const { groups, ask, open, tabs } = training(1, ['a', 'b'])
  ask(open('late'))
  groups.lost(tabs[0], 'rank 0: crashed')
  expect(tabs[1].received.map(({ kind }) => kind)).toEqual(['planned', 'lost'])
})

test('ElasticGroups ends the group for all when one rank has left it, and says why', () => {
  const { log, ask, tabs } = training(1, ['a', 'b'])
  ask(tabs[1], 'initProcessGroup: no way to rank 0')
  const why = 'rank 1 has left group 0: initProcessGroup: no way to rank 0'
  expect(tabs[0].received).toEqual([{ group: 0, kind: 'left', why }])
  // It is the first that knows.
  ask(tabs[0], 'initProcessGroup: no way to rank 1')
  expect(log).toEqual(['group 0: a,b', why, 'group 1: a,b'])
})

test('ElasticGroups waits for MIN ranks', () => {
  const { groups, log, ask, open, tabs } = training(2, ['a', 'b'])
  groups.lost(tabs[0], 'rank 0: crashed')
  ask(tabs[1])
  expect(log).toEqual(['group 0: a,b'])
  expect([groups.ranks, groups.count]).toEqual([1, 1])
  ask(open('late'))
  expect(log.at(-1)).toBe('group 1: b,late')
})

test('ElasticGroups goes without ranks that do not ask in time, and keeps those that wait', () => {
  const { groups, log, ask, tabs } = training(1, ['a', 'b', 'c'])
  groups.lost(tabs[1], 'rank 1: crashed')
  ask(tabs[2])
  vi.advanceTimersByTime(59_999)
  expect(log).toHaveLength(1)
  vi.advanceTimersByTime(1)
  expect(log).toEqual(['group 0: a,b,c', 'silent: a', 'group 1: c'])
  expect(vi.getTimerCount()).toBe(0)
})

test('ElasticGroups reports a tab that ends before the first group while others wait for it', () => {
  const { groups, log, ask, open } = started(1, 2)
  const [a, b] = [open('a'), open('b')]
  groups.ended(a)
  expect(log).toEqual([])
  ask(b)
  expect(log).toEqual(['ended early'])
})

test('ElasticGroups lets fewer than MIN end a run that another rank has ended', () => {
  const { groups, log, ask, tabs } = training(2, ['a', 'b'])
  groups.ended(tabs[0])
  ask(tabs[1])
  expect(log.at(-1)).toBe('group 1: b')
})

test('ElasticGroups is done without those that have not trained', () => {
  const { groups, log, ask, open, tabs } = training(1, ['a', 'b'])
  ask(open('late'))
  for (const tab of tabs) groups.ended(tab)
  expect(log).toEqual(['group 0: a,b', 'done without late'])
  expect(groups.ranks).toBe(0)
})

test('ElasticGroups forms no group of newcomers alone once all ranks are lost', () => {
  const { groups, log, ask, open, tabs } = training(1, ['a'])
  ask(open('late'))
  groups.lost(tabs[0], 'rank 0: crashed')
  expect(log).toEqual(['group 0: a'])
  expect(groups.ranks).toBe(0)
})
