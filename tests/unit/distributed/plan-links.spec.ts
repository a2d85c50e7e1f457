import { describe, expect, it } from 'vitest'
import {
  type Backend,
  machinesOf,
  type Place,
  planLinks,
  type Topology,
} from '../../../src/distributed/rendezvous/plan-links.ts'

const place = (pageTag: string, hostTag: string, hasWebRtc = true, hasRelay = true): Place => ({
  ...{ pageTag, hostTag, nodeTag: '', hasWebRtc, hasRelay },
  name: `tab ${pageTag}`,
})

/** The links of all ranks. */
const planAll = (places: Place[], backend: Backend = 'auto', topology: Topology = 'auto') =>
  places.map((_, rank) => planLinks(places, rank, backend, topology))

describe.each([1, 2, 3, 8, 16, 17, 64])('%i ranks', (size) => {
  const places = Array.from({ length: size }, (_, rank) => place(`p${rank}`, ''))

  it.each([
    ['mesh', size - 1],
    ['ring', Math.min(2, size - 1)],
    ['auto', size <= 16 ? size - 1 : 2],
  ] as const)('in %s: %i links each, with two sides that agree', (topology, count) => {
    const plans = planAll(places, 'auto', topology)
    for (const [rank, links] of plans.entries()) {
      expect(links).toHaveLength(count)
      for (const { peer, way, isInitiator } of links) {
        expect(plans[peer].filter((one) => one.peer === rank)).toEqual([
          { peer: rank, way, isInitiator: !isInitiator, canRelay: false },
        ])
      }
      if (size > 1) expect(links.map(({ peer }) => peer)).toContain((rank + 1) % size)
    }
  })
})

describe('backends', () => {
  // Two workers of one page, a tab beside it, and a tab elsewhere.
  const places = [place('a', 'x'), place('a', 'x'), place('b', 'x'), place('c', '')]
  const ways = (rank: number, backend: Backend, of = places) =>
    planLinks(of, rank, backend, 'mesh').map(({ way }) => way)

  it('auto takes the shortest way of each pair', () => {
    expect(ways(0, 'auto')).toEqual(['local', 'port', 'webrtc'])
    expect(ways(3, 'auto')).toEqual(['webrtc', 'webrtc', 'webrtc'])
  })

  it('auto takes the relay where it is asked to and no other way leads', () => {
    const apart = [place('a', 'x'), place('b', 'x'), place('c', '', false), place('d', '')]
    const plan = (of: Place[]) =>
      planLinks(of, 0, 'auto', 'mesh', 'fallback').map(({ way, canRelay }) => [way, canRelay])
    expect(plan(apart)).toEqual([
      ['port', false],
      ['relay', false],
      ['webrtc', true],
    ])
    // A server that relays nothing.
    const without = [place('a', 'x', true, false), place('d', '', true, false)]
    expect(plan(without)).toEqual([['webrtc', false]])
    // Nobody asked for it.
    expect(() => planLinks(apart, 0, 'auto', 'mesh', 'off')).toThrow(
      /rank 2 \(tab c\) .*In Node, or .*relay: "fallback"/,
    )
  })

  it('relay is the relay, also within a page', () => {
    expect(ways(0, 'relay')).toEqual(['relay', 'relay', 'relay'])
  })

  it('webrtc is webrtc, also within a page', () => {
    expect(ways(0, 'webrtc')).toEqual(['webrtc', 'webrtc', 'webrtc'])
  })

  it.each([
    ['local', places, 'rank 0 (tab a) and rank 2 (tab b) do not share a page'],
    ['broadcast', places, 'rank 0 (tab a) and rank 3 (tab c) do not share a browser'],
    ['webrtc', [place('a', 'x'), place('b', 'x', false)], 'rank 1 (tab b) do not both have WebRTC'],
    [
      'auto',
      [place('a', 'x', false), place('b', 'y')],
      'neither share a browser nor both have WebRTC',
    ],
    ['relay', [place('a', 'x'), place('a', 'x', true, false)], 'have no relay in common'],
  ] as const)(
    '%s: every rank gets an error that names the two that cannot be joined',
    (backend, of, text) => {
      const errors = of.map((_, rank) => {
        try {
          return planLinks(of, rank, backend, 'auto')
        } catch (error) {
          return String(error)
        }
      })
      expect(errors[0]).toContain(text)
      expect(new Set(errors).size).toBe(1)
    },
  )
})

describe('machines', () => {
  it('are what a launcher says, else browsers, else pages, numbered as ranks come', () => {
    const launched = (pageTag: string, nodeTag: string) => ({ ...place(pageTag, 'x'), nodeTag })
    expect(machinesOf([launched('a', '1'), launched('b', '0'), launched('c', '1')])).toEqual([
      0, 1, 0,
    ])
    expect(machinesOf([place('a', 'x'), place('b', 'y'), place('c', 'x')])).toEqual([0, 1, 0])
    expect(machinesOf([place('a', ''), place('b', ''), place('a', '')])).toEqual([0, 1, 0])
    // A name is of its kind alone.
    expect(machinesOf([place('x', ''), place('y', 'x'), launched('z', 'x')])).toEqual([0, 1, 2])
  })
})
