import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import {
  exportTrace,
  nameSpans,
  span,
  type TraceEvent,
  traceEvents,
} from '../../../src/util/spans.ts'
import { setSwitches } from '../../../src/util/switches.ts'

interface Exported {
  readonly name: string
  readonly ph: 'X' | 'M'
  readonly pid: number
  readonly tid: number
  readonly ts: number
  readonly dur: number
  readonly args: { readonly name?: string }
}
const exported = (all?: readonly TraceEvent[]): Exported[] =>
  JSON.parse(exportTrace(all)).traceEvents

/** Spans by the name of their track. */
function tracksOf(events: readonly Exported[]): Record<string, Exported[]> {
  const names = events.filter(({ name }) => name === 'thread_name')
  return Object.fromEntries(
    names.flatMap(({ pid, tid, args }) => {
      const own = events.filter(
        (event) => event.ph === 'X' && event.pid === pid && event.tid === tid,
      )
      return own.length > 0 ? [[`${pid} ${args.name}`, own]] : []
    }),
  )
}

beforeEach(() => {
  vi.spyOn(console, 'info').mockImplementation(() => undefined)
  setSwitches({ trace: true })
})
afterEach(() => {
  vi.restoreAllMocks()
  setSwitches({ trace: false })
})

/** Nanoseconds as a reader has them who multiplies and cuts off, whatever the order. */
const nanoseconds = (us: number) => Math.trunc(us * 1000)

test('kernels that touch do so to the nanosecond, and those of a step lie within it', () => {
  nameSpans(0, 'rank 0')
  const before = traceEvents()
  const start = performance.now()
  let at = start
  for (let i = 0; i < 200; i++) {
    const end = at + 0.0371 * (i + 1)
    span('kernels', `kernel ${i}`, at, end)
    at = end
  }
  span('kernels', 'all of them', start, at)
  // Specs of the same worker may have left spans.
  const meta = before.filter(({ ph }) => ph === 'M')
  const own = [...meta, ...traceEvents().slice(before.length)]
  const [whole, ...kernels] = tracksOf(exported(own))['0 kernels']
  expect(whole.name).toBe('all of them')
  expect(kernels).toHaveLength(200)
  const endOf = ({ ts, dur }: Exported) => nanoseconds(ts) + nanoseconds(dur)
  kernels.forEach((kernel, i) => {
    if (i > 0) expect(nanoseconds(kernel.ts)).toBe(endOf(kernels[i - 1]))
    expect(Math.abs(kernel.dur - 37.1 * (i + 1))).toBeLessThan(0.2)
  })
  expect(endOf(kernels[199])).toBe(endOf(whole))
  expect(whole.ts).toBe(0)
})

test('spans that overlap get separate tracks; ranks share no thread, and none is 0', () => {
  const meta = traceEvents().filter(({ ph }) => ph === 'M')
  const collective = (pid: number, name: string, ts: number, dur: number): TraceEvent => {
    return { name, ph: 'X', pid, tid: 2, ts: 5e13 + ts, dur, args: {} }
  }
  const ofRank = (pid: number) => [
    ...meta.map((event) => ({ ...event, pid })),
    collective(pid, 'first', 0, 10),
    collective(pid, 'overlaps', 5, 10),
    collective(pid, 'within', 6, 4),
    collective(pid, 'overlaps both', 7, 20),
    collective(pid, 'after', 10, 3),
  ]
  const events = exported([0, 1].flatMap(ofRank))
  const tracks = tracksOf(events)
  const names = Object.entries(tracks).map(([track, own]) => [track, own.map(({ name }) => name)])
  const ofOne = (pid: number) => ({
    [`${pid} collectives`]: ['first', 'within', 'after'],
    [`${pid} collectives 2`]: ['overlaps'],
    [`${pid} collectives 3`]: ['overlaps both'],
  })
  expect(Object.fromEntries(names)).toEqual({ ...ofOne(0), ...ofOne(1) })
  expect(tracks['0 collectives'][1]).toMatchObject({ ts: 6, dur: 4 })
  const threads = (pid: number) => events.filter((event) => event.pid === pid).map(({ tid }) => tid)
  expect(threads(0).filter((tid) => tid === 0 || threads(1).includes(tid))).toEqual([])
})
