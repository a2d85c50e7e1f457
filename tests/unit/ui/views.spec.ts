import { describe, expect, it } from 'vitest'
import { noTimes } from '../../../src/graph/step-program.ts'
import { meshLimit } from '../../../src/peer/edges.ts'
import type { JsonValue } from '../../../src/peer/messages.ts'
import { adapterWords } from '../../../src/ui/adapter-words.ts'
import { browserName, plainName } from '../../../src/ui/browser-name.ts'
import {
  formatBytes,
  formatLoss,
  formatNumber,
  formatPercent,
  formatSeconds,
} from '../../../src/ui/format.ts'
import { chordsOf, ringOf } from '../../../src/ui/rates.ts'
import { append, emptySeries, smoothed } from '../../../src/ui/series.ts'
import { noFacts, outsideLinks } from '../../../src/ui/server-facts.ts'
import { Store, type Surface, snapshotsPerSec, stepsShownPerSec } from '../../../src/ui/store.ts'
import { troubleAhead, troubleOf } from '../../../src/ui/trouble.ts'
import { GpuError } from '../../../src/util/errors.ts'
import { makeLobby, makeSnapshot, training } from '../../support/page-states.ts'

describe('smoothing', () => {
  it('a straight line stays as it is, at any half-life', () => {
    const line = Float64Array.from({ length: 300 }, (_, i) => 3 - i / 200)
    for (const halfLife of [0, 2, 20]) {
      const result = smoothed(line, line.length, halfLife)
      result.forEach((value, i) => void expect(value).toBeCloseTo(line[i], 6))
    }
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
  })

  it("takes nothing about another tab's adapter for granted", () => {
    expect(
      adapterWords({ vendor: 'google', architecture: 'swiftshader', isSoftware: true }),
    ).toEqual({ text: 'google · swiftshader', isSoftware: true, features: [] })
    const odds: JsonValue[] = [null, 7, 'x', [], {}, { vendor: 3 }]
    for (const odd of odds) {
      expect(adapterWords(odd).text).toBe('adapter without a name')
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

  it('a browser without WebGPU is told so, one with it is not', () => {
    expect(troubleAhead({ ...page, hasGpu: false })?.kind).toBe('no-webgpu')
    expect(troubleAhead(page)).toBeNull()
  })

  it('an adapter that is missing is another trouble than a browser without WebGPU', () => {
    const text = 'device: WebGPU is there but no adapter came up. Turn on …'
    expect(troubleOf(new GpuError('gpu.unavailable', text)).kind).toBe('no-adapter')
  })
})

describe('the link for others', () => {
  const at = (origin: string) => `${origin}/?transport=webrtc#room=12&key=ab`
  const lan = ['https://192.168.1.20:5173/', 'https://[2001:db8::1]:5173/']

  it('is the address of the page where others can open that', () => {
    const own = at('https://tabs.example')
    expect(outsideLinks(own, { ...noFacts, lanUrls: lan })).toEqual([own])
    expect(outsideLinks(own, noFacts)).toEqual([own])
  })

  it.each(['https://localhost:5173', 'https://127.0.0.1:5173', 'https://[::1]:5173'])(
    '%s: that of the machine, as the server tells it, or none',
    (origin) => {
      expect(outsideLinks(at(origin), { ...noFacts, lanUrls: lan })).toEqual([
        at('https://192.168.1.20:5173'),
        at('https://[2001:db8::1]:5173'),
      ])
      expect(outsideLinks(at(origin), noFacts)).toEqual([])
    },
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

  it('go as the two members settle, or as this tab knows of its own', () => {
    const { members } = makeLobby(4)
    expect(chordsOf(members, false).map(({ kind }) => kind)).toEqual(['webrtc', 'webrtc'])
    const own = { rank: 1, ways: { 3: 'relay' } } as const
    expect(chordsOf(members, false, own).map(({ kind }) => kind)).toEqual(['webrtc', 'relay'])
  })
})

describe('the store', () => {
  /** Frames every 4 ms on a clock that the test moves. */
  function virtualSurface() {
    const state = { now: 0, isHidden: false }
    const due: { atMs: number; callback: () => void }[] = []
    const surface: Surface = {
      isHidden: () => state.isHidden,
      now: () => state.now,
      frame: (callback) => void due.push({ atMs: state.now + 4, callback }),
      after: (delayMs, callback) => void due.push({ atMs: state.now + delayMs, callback }),
    }
    const run = (untilMs: number) => {
      for (;;) {
        due.sort((a, b) => a.atMs - b.atMs)
        if (due.length === 0 || due[0].atMs > untilMs) break
        const { atMs, callback } = due.shift()!
        state.now = atMs
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

  it('draws mere steps of a run less often, and what a person does at once', () => {
    const { state, surface, run } = virtualSurface()
    const drawn: { atMs: number; step: number; name: string }[] = []
    const store = new Store(training(1, 1), surface, ({ run: now, name }) =>
      drawn.push({ atMs: state.now, step: now!.step, name }),
    )
    const times = { data: 0, ...noTimes, total: 1 }
    for (let step = 2; step <= 2000; step++) {
      run(step)
      const event = {
        event: 'step',
        step,
        totalSteps: 9999,
        epoch: 0,
        loss: 1,
        rank: 0,
        samples: 64,
        globalSamples: 64,
        times,
        bytesSent: 0,
      } as const
      store.dispatch({ type: 'event', atMs: step, event })
      if (step === 1500) store.dispatch({ type: 'named', name: 'renamed' })
    }
    run(state.now + 400)
    expect(drawn.length).toBeGreaterThanOrEqual(2 * stepsShownPerSec)
    expect(drawn.length).toBeLessThanOrEqual(2 * stepsShownPerSec + 3)
    expect(drawn.find(({ name }) => name === 'renamed')!.atMs - 1500).toBeLessThan(80)
    expect(drawn.at(-1)!.step).toBe(2000)
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
