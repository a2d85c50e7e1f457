import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { noTimes } from '../../../src/graph/plan/step-program.ts'
import { meshLimit } from '../../../src/peer/room/edges.ts'
import type { LobbyMember } from '../../../src/peer/room/messages.ts'
import { plainName } from '../../../src/peer/room/names.ts'
import {
  formatBytes,
  formatLoss,
  formatNumber,
  formatPercent,
  formatSeconds,
} from '../../../src/ui/parts/format.ts'
import { append, emptySeries, smoothed } from '../../../src/ui/parts/series.ts'
import { browserName } from '../../../src/ui/room/browser-name.ts'
import { DrawPace, snapshotsPerSec } from '../../../src/ui/state/draw-pace.ts'
import { isProgressOnly } from '../../../src/ui/state/progress-actions.ts'
import { chordsOf, ringOf } from '../../../src/ui/state/rates.ts'
import { withTrust } from '../../../src/ui/state/room-facts.ts'
import { outsideLinks, readServerFacts } from '../../../src/ui/state/server-facts.ts'
import type { Action, Snapshot } from '../../../src/ui/state/snapshot.ts'
import { Store, type Surface } from '../../../src/ui/state/store.ts'
import { troubleAhead, troubleOf } from '../../../src/ui/state/trouble.ts'
import { adapterLine, adapterWords } from '../../../src/util/adapter-words.ts'
import { GpuError } from '../../../src/util/errors.ts'
import type { JsonValue } from '../../../src/util/json-value.ts'
import { makeLobby, makeSnapshot, training } from '../../support/page-states.ts'

/** The lobby with other round trips. */
function measuredAgain({ lobby, ownId }: Snapshot, us: number): Action {
  const members = lobby!.members.map((member) => ({
    ...member,
    measured: { linkUs: [us, us] as [number, number] },
  }))
  return { type: 'lobby', lobby: { ...lobby!, members }, ownId }
}

describe('smoothing', () => {
  it('is the mean of the points around, as far ahead as there are some before; a half-life away they count half', () => {
    const values = Float64Array.of(4, 1, 7, 2, 8, 3, 5)
    const length = values.length
    for (const halfLife of [1, 3]) {
      const result = smoothed(values, length, halfLife)
      for (let i = 0; i < length; i++) {
        const weights = Array.from(values, (_, j) =>
          j > 2 * i ? 0 : 0.5 ** (Math.abs(i - j) / halfLife),
        )
        const sum = weights.reduce((sum, weight, j) => sum + weight * values[j], 0)
        expect(result[i]).toBeCloseTo(sum / weights.reduce((a, b) => a + b), 12)
      }
    }
    expect([...smoothed(values, length, 0)]).toEqual([...values])
  })

  it('neither lags behind a falling loss nor runs ahead of it', () => {
    const falling = Float64Array.from(
      { length: 300 },
      (_, i) => 2 * Math.exp(-i / 60) + 0.3 + (i % 2 ? 0.1 : -0.1),
    )
    const truth = (i: number) => 2 * Math.exp(-i / 60) + 0.3
    const result = smoothed(falling, 300, 10)
    const apart = Array.from(result, (value, i) => value - truth(i)).slice(0, -30)
    expect(Math.max(...apart.map(Math.abs))).toBeLessThan(0.12)
    const mean = apart.reduce((a, b) => a + b) / apart.length
    expect(Math.abs(mean)).toBeLessThan(0.04)
    // However steep the fall.
    const steep = Float64Array.from({ length: 300 }, (_, i) => Math.exp(-i / 5))
    for (const halfLife of [2, 10, 50])
      expect(Math.min(...smoothed(steep, 300, halfLife))).toBeGreaterThanOrEqual(steep[299])
    // It begins where the values do.
    expect(smoothed(steep, 300, 10)[0]).toBe(1)
  })

  it('leaves a gap where a value is missing, and nowhere else', () => {
    const line = smoothed(Float64Array.of(1, Number.NaN, 3, Number.POSITIVE_INFINITY), 4, 2)
    expect([...line].map(Number.isFinite)).toEqual([true, false, true, false])
  })

  it('takes most of the noise away', () => {
    const noisy = Float64Array.from({ length: 400 }, (_, i) => (i % 2 ? 1 : -1))
    const tail = smoothed(noisy, 400, 10).subarray(50)
    expect(Math.max(...tail.map(Math.abs))).toBeLessThan(0.15)
  })

  it('a series grows past its storage', () => {
    let series = emptySeries
    for (let i = 0; i < 1000; i++) series = append(series, i, 2 * i)
    expect(series.length).toBe(1000)
    expect(series.ys[999]).toBe(1998)
  })
})

describe('numbers in words', () => {
  it.each([
    [formatNumber(0.523), '0.52'],
    [formatNumber(43.14), '43.1'],
    [formatNumber(12_345), '12,300'],
    [formatNumber(Number.NaN), '–'],
    [formatLoss(0.25128), '0.2513'],
    [formatLoss(0.000123), '1.23e-4'],
    [formatPercent(0.9745), '97.45 %'],
    [formatBytes(812), '812 B'],
    [formatBytes(27_136_000), '25.9 MiB'],
    [formatSeconds(8.04), '8.0 s'],
    [formatSeconds(185), '3 min 05 s'],
    [formatSeconds(4320), '1 h 12 min'],
  ])('%s', (text, expected) => expect(text).toBe(expected))
})

describe('who a tab is', () => {
  it('is named after its browser', () => {
    const chrome = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/141.0 Safari/537.36'
    expect(browserName(chrome)).toBe('Chrome on Linux')
    expect(browserName(`${chrome} Edg/141.0`)).toBe('Edge on Linux')
    const phone = 'Mozilla/5.0 (iPhone; CPU iPhone OS 26_0 like Mac OS X) Version/26.0 Safari/604.1'
    expect(browserName(phone)).toBe('Safari on iOS')
    expect(browserName('')).toBe('Browser')
  })

  it('names fit the protocol', () => {
    expect(plainName('  a\nb ')).toBe('a b')
    expect(plainName('x'.repeat(60))).toHaveLength(40)
    expect(plainName(`${'x'.repeat(39)}\u{1f600}`)).toBe('x'.repeat(39))
    // Written from right to left it would show "Ada".
    expect(plainName('\u202eadA\u202c')).toBe('adA')
    expect(plainName('A\u200bda\ufeff')).toBe('Ada')
    expect(plainName('\u3164\u2800 \u200d')).toBe('')
    expect(plainName('\u0645\u0631\u062d\u0628\u0627 \u2764\ufe0f')).toBe(
      '\u0645\u0631\u062d\u0628\u0627 \u2764\ufe0f',
    )
  })

  it('says in one line what a rank computes on, and why', () => {
    const cpu = { architecture: 'wasm', isSoftware: true }
    const description = 'CPU in WebAssembly, 2 threads; no GPU, only the adapter google swiftshader'
    expect(adapterLine({ ...cpu, description })).toBe(
      'CPU in WebAssembly, 2 threads (no GPU, only the adapter google swiftshader)',
    )
    expect(adapterLine({ ...cpu, description: 'CPU in WebAssembly, 1 thread' })).toBe(
      'CPU in WebAssembly, 1 thread',
    )
    expect(adapterLine({ vendor: 'nvidia', architecture: 'hopper', description: 'H200' })).toBe(
      'nvidia · hopper',
    )
    const software = { vendor: 'google', architecture: 'swiftshader', isSoftware: true }
    expect(adapterLine(software)).toBe('google · swiftshader (software adapter)')
    expect(adapterLine({ ...software, why: 'no GPU, and no vectors' })).toBe(
      'google · swiftshader (no GPU, and no vectors)',
    )
    const plain = { architecture: 'reference', description: 'the plain references (slow)' }
    expect(adapterLine({ ...plain, isSoftware: true })).toBe('the plain references (slow)')
  })

  it('shows what another tab sends of its adapter, with any fields missing', () => {
    expect(
      adapterWords({ vendor: 'google', architecture: 'swiftshader', isSoftware: true }),
    ).toEqual({ text: 'google · swiftshader', title: '', why: '', isSoftware: true, features: [] })
    const description = 'CPU in WebAssembly, 2 threads; no WebGPU'
    expect(adapterWords({ vendor: '', architecture: 'wasm', description })).toMatchObject({
      text: 'CPU in WebAssembly, 2 threads',
      title: description,
      why: 'no WebGPU',
    })
    const odds: JsonValue[] = [null, 7, 'x', [], {}, { vendor: 3 }]
    for (const odd of odds) {
      expect(adapterWords(odd).text).toBe('unnamed adapter')
    }
  })
})

describe('what is wrong', () => {
  const page = { isSecureContext: true, hasGpu: true, origin: 'http://10.0.0.2:5173', port: '5173' }

  it('an insecure page says how to get a secure one', () => {
    const trouble = troubleAhead({ ...page, isSecureContext: false, hasGpu: false })!
    expect(trouble.kind).toBe('insecure')
    expect(trouble.remedies.join(' ')).toContain('npm start -- --host')
    expect(trouble.remedies.join(' ')).toContain('http://localhost:5173')
  })

  it('a browser without WebGPU gets an error, one with it none', () => {
    expect(troubleAhead({ ...page, hasGpu: false })?.kind).toBe('no-webgpu')
    expect(troubleAhead(page)).toBeNull()
  })

  it('an adapter that is missing is another trouble than a browser without WebGPU', () => {
    const text = 'device: this browser has WebGPU but offers no adapter. Turn on …'
    expect(troubleOf(new GpuError('gpu.unavailable', text)).kind).toBe('no-adapter')
  })

  it('a CPU that cannot compute has its own ways out, as parameters of the page', () => {
    const text =
      'device: "cpu" needs WebAssembly with vector instructions (SIMD), which this browser does not have. Use a newer browser. Or choose device=webgpu in the address of the page: an adapter is there.'
    const trouble = troubleOf(new GpuError('gpu.unavailable', text))
    expect(trouble.remedies).toEqual([
      'Use a newer browser.',
      'Or choose device=webgpu in the address of the page: an adapter is there.',
    ])
    // Of this kind the card has no button "Compute on the CPU".
    expect(trouble.kind).toBe('cpu')
  })
})

/** The facts of a server that serves its own machine alone. */
const closed = { lanUrls: [], asks: false, data: null }

describe("the server's facts", () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => {
    vi.useRealTimers()
    vi.unstubAllGlobals()
  })

  /** What a page reads whose tries are answered with these in turn; undefined: no answer. `tries`: how many there were. */
  const read = async (answers: readonly (string | undefined)[]) => {
    let tries = 0
    vi.stubGlobal('fetch', async () => {
      const text = answers[Math.min(tries++, answers.length - 1)]
      if (text === undefined) throw new TypeError('Failed to fetch')
      return new Response(text)
    })
    const facts = readServerFacts()
    await vi.advanceTimersByTimeAsync(60_000)
    return { facts: await facts, tries }
  }

  it('are read again when the server does not answer, or another one answers for it', async () => {
    const text = JSON.stringify(closed)
    expect(await read([undefined, '<h1>502 Bad Gateway</h1>', text])).toEqual({
      facts: closed,
      tries: 3,
    })
  })

  it.each([undefined, '<p>page</p>'])(
    'are unknown after five tries that were answered with %s, not those of a server for this machine alone',
    async (answer) => {
      const { facts, tries } = await read([answer])
      expect(facts).toBeNull()
      expect(tries).toBe(5)
    },
  )
})

describe('the link for others', () => {
  const at = (origin: string) => `${origin}/?transport=webrtc#room=12&key=ab`
  const lan = ['https://192.168.1.20:5173/', 'https://[2001:db8::1]:5173/']

  it('is the address of the page where others can open that', () => {
    const own = at('https://tabs.example')
    expect(outsideLinks(own, { ...closed, lanUrls: lan })).toEqual([own])
    expect(outsideLinks(own, null)).toEqual([own])
  })

  it.each(['https://localhost:5173', 'https://127.0.0.1:5173', 'https://[::1]:5173'])(
    '%s: that of the machine, as the server reports it, or none',
    (origin) => {
      expect(outsideLinks(at(origin), { ...closed, lanUrls: lan })).toEqual([
        at('https://192.168.1.20:5173'),
        at('https://[2001:db8::1]:5173'),
      ])
      expect(outsideLinks(at(origin), closed)).toEqual([])
      expect(outsideLinks(at(origin), null)).toEqual([])
    },
  )
})

describe('trust', () => {
  const lanUrls = ['https://192.168.1.20:5173/']
  const open = { invite: 'https://localhost/#room=12&key=ab', server: { ...closed, lanUrls } }

  it('makes other tabs strangers where the page is served to a network, unless a person trusts them', () => {
    expect(withTrust({ lr: 1 }, open)).toEqual({ lr: 1, trust: 'strangers' })
    expect(withTrust({ trust: 'members' }, open)).toEqual({ trust: 'members' })
    expect(withTrust({ lr: 1 }, { ...open, server: closed })).toEqual({ lr: 1 })
    expect(withTrust({ lr: 1 }, { ...open, invite: '' })).toEqual({ lr: 1 })
  })

  it('makes other tabs strangers until the server reports who can reach it', () => {
    expect(withTrust({ lr: 1 }, { ...open, server: makeSnapshot().server })).toEqual({
      lr: 1,
      trust: 'strangers',
    })
    expect(withTrust({ trust: 'members' }, { ...open, server: null })).toEqual({ trust: 'members' })
    expect(withTrust({ lr: 1 }, { invite: '', server: null })).toEqual({ lr: 1 })
  })

  it.each([{ exact: true }, { parallel: 'fsdp' }, { strategy: 'alone' }] as const)(
    'leaves settings as they are where ranks do not see the gradients of each: %j',
    (config) => expect(withTrust(config, open)).toEqual(config),
  )
})

describe('the ring', () => {
  it('joins neighbours by the rule of the server', () => {
    const { members } = makeLobby(3)
    expect(ringOf(members, true)).toEqual([
      { from: 0, to: 1, kind: 'port' },
      { from: 1, to: 2, kind: 'webrtc' },
      { from: 2, to: 0, kind: 'webrtc' },
    ])
    expect(ringOf(members.slice(0, 1), true)).toEqual([])
    // How this tab's own links go is known; what two others settle is theirs.
    const open = members
      .slice(0, 3)
      .map((one) => ({ ...one, hostTag: '', transport: 'fallback' as const }))
    const kinds = (own?: Parameters<typeof ringOf>[2], hasRelay = true) =>
      ringOf(open, hasRelay, own).map(({ kind }) => kind)
    expect(kinds()).toEqual(['either', 'either', 'either'])
    expect(kinds(undefined, false)).toEqual(['webrtc', 'webrtc', 'webrtc'])
    expect(kinds({ rank: 1, ways: { 0: 'relay', 2: 'webrtc' } })).toEqual([
      'relay',
      'webrtc',
      'either',
    ])
  })
})

describe('the links beside the ring', () => {
  const pairs = (size: number) =>
    chordsOf(makeLobby(size).members, false).map(({ from, to }) => `${from}-${to}`)

  it('are all pairs that are no neighbours, up to the size at which a group is a ring alone', () => {
    expect([2, 3].map(pairs)).toEqual([[], []])
    expect(pairs(4)).toEqual(['0-2', '1-3'])
    expect(pairs(5)).toEqual(['0-2', '0-3', '1-3', '1-4', '2-4'])
    const many = (size: number) => chordsOf(Array(size).fill(makeLobby(1).members[0]), false)
    expect(many(meshLimit)).toHaveLength((meshLimit * (meshLimit - 3)) / 2)
    expect(many(meshLimit + 1)).toEqual([])
  })

  it('are of the kind that the two members share, or that this tab knows', () => {
    const { members } = makeLobby(4)
    expect(chordsOf(members, false).map(({ kind }) => kind)).toEqual(['webrtc', 'webrtc'])
    const own = { rank: 1, ways: { 3: 'relay' } } as const
    expect(chordsOf(members, false, own).map(({ kind }) => kind)).toEqual(['webrtc', 'relay'])
  })
})

describe('the store', () => {
  /** Frames every 4 ms on a clock that the test moves; each takes `costMs` of it. */
  function virtualSurface(costMs = 1) {
    const state = { now: 0, isHidden: false }
    const due: { atMs: number; callback: () => void }[] = []
    const surface: Surface = {
      isHidden: () => state.isHidden,
      now: () => state.now,
      frame: (callback) => void due.push({ atMs: state.now + 4, callback }),
      after: (delayMs, callback) => void due.push({ atMs: state.now + delayMs, callback }),
      painted(callback) {
        state.now += costMs
        callback()
      },
    }
    const run = (untilMs: number) => {
      for (;;) {
        due.sort((a, b) => a.atMs - b.atMs)
        if (due.length === 0 || due[0].atMs > untilMs) break
        const { atMs, callback } = due.shift()!
        state.now = Math.max(state.now, atMs)
        callback()
      }
      state.now = untilMs
    }
    return { state, surface, run }
  }

  it('draws a few snapshots a second, the newest last', () => {
    const { state, surface, run } = virtualSurface()
    const drawn: string[] = []
    const store = new Store(makeSnapshot(), surface, ({ name }) => drawn.push(name))
    for (let i = 0; i < 1000; i++) {
      run(i)
      store.dispatch({ type: 'named', name: `name ${i}` })
    }
    run(state.now + 100)
    expect(drawn.length).toBeGreaterThan(0.6 * snapshotsPerSec)
    expect(drawn.length).toBeLessThanOrEqual(snapshotsPerSec + 2)
    expect(snapshotsPerSec).toBeLessThanOrEqual(30)
    expect(drawn.at(-1)).toBe('name 999')
  })

  it.each([
    { machine: 'a fast', costMs: 0.5, min: 13, max: 15 },
    { machine: 'a usual', costMs: 4, min: 2.9, max: 3.6 },
    { machine: 'a slow', costMs: 11, min: 0.9, max: 1.4 },
    { machine: 'a very slow', costMs: 60, min: 0.4, max: 0.7 },
  ])(
    'draws steps and tests of a run as often as $machine machine can afford, and what a person does at once',
    ({ costMs, min, max }) => {
      const { state, surface, run } = virtualSurface(costMs)
      const drawn: { atMs: number; step: number; name: string }[] = []
      const store = new Store(training(1, 1), surface, ({ run: now, name }) =>
        drawn.push({ atMs: state.now, step: now!.step, name }),
      )
      const times = { data: 0, ...noTimes, total: 1 }
      for (let step = 2; step <= 10_000; step++) {
        run(Math.max(step, state.now))
        const event = {
          event: 'step',
          step,
          totalSteps: 9999,
          epoch: 0,
          loss: 1,
          value: 0.5,
          rank: 0,
          samples: 64,
          globalSamples: 64,
          times,
          bytesSent: 0,
        } as const
        store.dispatch({ type: 'event', atMs: step, event })
        if (step % 5 === 0) {
          const begin = { event: 'phase', phase: 'evaluate', rank: 0 } as const
          const value = {
            event: 'evaluation',
            step,
            epoch: 0,
            loss: 1,
            metric: 'x',
            value: 1,
            rank: 0,
          } as const
          for (const test of [begin, value])
            store.dispatch({ type: 'event', atMs: step, event: test })
        }
        // Round trips are measured again and again.
        if (step % 100 === 0) store.dispatch(measuredAgain(store.snapshot, step))
        if (step === 9500) store.dispatch({ type: 'named', name: 'renamed' })
      }
      run(state.now + 4000)
      const settled = drawn.filter(({ atMs }) => atMs > 2000 && atMs <= 9400)
      expect(settled.length / 7.4).toBeGreaterThanOrEqual(min)
      expect(settled.length / 7.4).toBeLessThanOrEqual(max)
      expect(drawn.find(({ name }) => name === 'renamed')!.atMs - 9500).toBeLessThan(80)
      expect(drawn.at(-1)!.step).toBe(10_000)
    },
  )

  it('on slow machines draws at multiples of a second and the like, so that tabs show the same step', () => {
    const pace = new DrawPace()
    for (let i = 0; i < 100; i++) pace.took(12)
    expect(pace.after(5_000_010)).toBe(5_001_000)
    expect(pace.after(5_000_400)).toBe(5_001_000)
    // Just before it a person's act was drawn.
    expect(pace.after(5_000_900)).toBe(5_002_000)
    for (let i = 0; i < 100; i++) pace.took(100)
    expect(pace.after(5_000_010)).toBe(5_002_000)
    // A fast one has no need to.
    for (let i = 0; i < 100; i++) pace.took(3)
    expect(pace.after(5_000_010) - 5_000_010).toBeCloseTo(3 / 0.013, 3)
    expect(pace.after(Number.NEGATIVE_INFINITY)).toBe(Number.NEGATIVE_INFINITY)
  })

  it('draws at once who comes, goes or hides, not what members measure in a run', () => {
    const before = training(3, 1)
    const lobby = before.lobby!
    const [first, ...rest] = lobby.members
    const received = (members: readonly LobbyMember[], from = before) =>
      isProgressOnly(
        { type: 'lobby', lobby: { ...lobby, members: [...members] }, ownId: null },
        from,
      )
    expect(isProgressOnly(measuredAgain(before, 7), before)).toBe(true)
    expect(received([{ ...first, hidden: !first.hidden }, ...rest])).toBe(false)
    expect(received([first])).toBe(false)
    expect(received([...lobby.members, { ...first, id: 'z'.repeat(first.id.length) }])).toBe(false)
    const alone = { ...before, run: null }
    expect(isProgressOnly(measuredAgain(alone, 7), alone)).toBe(false)
  })

  it('resolves nextDraw when the next picture is drawn, without one more', async () => {
    const { surface, run } = virtualSurface()
    let count = 0
    const store = new Store(makeSnapshot(), surface, () => count++)
    run(100)
    expect(count).toBe(1)
    const received: number[] = []
    void store.nextDraw().then(() => received.push(count))
    void store.nextDraw().then(() => received.push(count))
    await Promise.resolve()
    expect(received).toEqual([])
    store.dispatch({ type: 'named', name: 'another' })
    run(1000)
    await Promise.resolve()
    expect(received).toEqual([2, 2])
    // And where nothing else is drawn, one picture is.
    void store.nextDraw().then(() => received.push(count))
    run(2000)
    await Promise.resolve()
    expect(received).toEqual([2, 2, 3])
  })

  it('draws nothing while hidden, and catches up', () => {
    const { state, surface, run } = virtualSurface()
    const drawn: string[] = []
    state.isHidden = true
    const store = new Store(makeSnapshot(), surface, ({ name }) => drawn.push(name))
    store.dispatch({ type: 'named', name: 'unseen' })
    run(1000)
    expect(drawn).toEqual([])
    expect(store.snapshot.name).toBe('unseen')
    state.isHidden = false
    store.show()
    run(2000)
    expect(drawn).toEqual(['unseen'])
  })
})
