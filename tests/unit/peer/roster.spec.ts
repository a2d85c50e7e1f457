import { describe, expect, test } from 'vitest'
import {
  ballotAbove,
  judge,
  type Report,
  type Roster,
  winsHalf,
} from '../../../src/peer/elastic/roster.ts'

// Who may decide who trains next: each rule, and beside it what would go wrong without it.

const roster = (ballot: number, members: string, ...before: Roster['before']): Roster => ({
  ballot,
  members: members.split(''),
  before,
  isRing: false,
})

interface Said {
  roster?: Roster | null
  proved?: number
  linked?: string
  hasState?: boolean
}

/** Reports by member, each linked to all others that answer unless it says otherwise. */
function reportsOf(said: Record<string, Said>): Map<string, Report> {
  const all = Object.keys(said)
  const report = (id: string, { roster: own = null, proved, linked, hasState }: Said): Report => ({
    roster: own,
    proved: proved ?? own?.ballot ?? 0,
    hasState: hasState ?? own !== null,
    step: 0,
    linked: linked?.split('') ?? all.filter((other) => other !== id),
    apart: [],
    former: null,
  })
  return new Map(Object.entries(said).map(([id, one]) => [id, report(id, one)]))
}

const verdictOf = (
  leader: string,
  said: Record<string, Said>,
  dead: Record<string, number> = {},
  max = 64,
  saidBye: readonly string[] = [],
) =>
  judge({
    leader,
    reports: reportsOf(said),
    dead: new Map(Object.entries(dead)),
    saidBye: new Set(saidBye),
    keptOut: new Set(),
    max,
  })

const five = roster(1, 'abcde')
const four = roster(1, 'abcd')

describe('judge needs more than half of the newest roster', () => {
  test('three of five continue', () => {
    const verdict = verdictOf('b', {
      b: { roster: five },
      c: { roster: five },
      d: { roster: five },
    })
    expect(verdict).toMatchObject({ kind: 'agreed', members: ['b', 'c', 'd'] })
  })

  test('two of five do not continue when a third has only said goodbye: it may be elsewhere with the other two', () => {
    const reports = { a: { roster: five }, b: { roster: five } }
    const e = { e: 1 }
    expect(verdictOf('a', reports, e, 64, ['e'])).toEqual({
      kind: 'missing',
      missing: ['c', 'd'],
      unlinked: [],
    })
    expect(verdictOf('a', reports, e).kind).toBe('half')
    const all = { c: 1, d: 1, e: 1 }
    expect(verdictOf('a', reports, all, 64, ['c', 'd', 'e']).kind).toBe('half')
  })

  test('two of five do not continue: the other three may', () => {
    const verdict = verdictOf('a', { a: { roster: five }, b: { roster: five } })
    expect(verdict).toEqual({ kind: 'missing', missing: ['c', 'd', 'e'], unlinked: [] })
  })

  test('newcomers come last in the roster, and do not count', () => {
    const here = { x: {}, a: { roster: five }, b: { roster: five }, y: {} }
    expect(verdictOf('a', here).kind).toBe('missing')
    expect(verdictOf('a', { ...here, c: { roster: five } })).toMatchObject({
      kind: 'agreed',
      members: ['a', 'b', 'c', 'x', 'y'],
    })
  })

  test('members that have entered no roster decide nothing', () => {
    expect(verdictOf('x', { x: {}, y: {} })).toEqual({ kind: 'none' })
  })
})

describe('judge needs more than half of each older roster too, back to the newest proved one', () => {
  // From {a..e} a call of b made {b, c, d}; only b and c may have entered it.
  const next = roster(2, 'bcd', { ballot: 1, members: five.members })

  test('most of a newer roster are not enough: most of the old one could have entered another', () => {
    const here = { b: { roster: next, proved: 1 }, c: { roster: next, proved: 1 } }
    expect(verdictOf('b', here)).toMatchObject({ kind: 'missing', missing: ['a', 'd', 'e'] })
  })

  test('most of a newer roster are enough once it is proved', () => {
    const here = { b: { roster: next, proved: 1 }, c: { roster: next, proved: 2 } }
    expect(verdictOf('b', here)).toMatchObject({
      kind: 'agreed',
      before: [{ ballot: 2, members: ['b', 'c', 'd'] }],
    })
  })

  test('most of both rosters continue, and the next roster names both', () => {
    const here = {
      b: { roster: next, proved: 1 },
      c: { roster: next, proved: 1 },
      a: { roster: five },
    }
    expect(verdictOf('b', here)).toMatchObject({
      kind: 'agreed',
      members: ['b', 'c', 'a'],
      before: [{ ballot: 2 }, { ballot: 1 }],
    })
  })

  test('most of the old roster are not enough when one of them entered a newer one', () => {
    const wide = roster(2, 'bcdxyz', { ballot: 1, members: five.members })
    const here = { a: { roster: five }, b: { roster: wide, proved: 1 }, e: { roster: five } }
    expect(verdictOf('a', here)).toMatchObject({
      kind: 'missing',
      missing: ['c', 'd', 'x', 'y', 'z'],
    })
  })

  test('rosters before the proved one do not count', () => {
    const third = roster(3, 'bc', { ballot: 2, members: ['b', 'c', 'd'] }, ...next.before)
    const here = { b: { roster: third, proved: 2 }, c: { roster: third, proved: 1 } }
    const verdict = verdictOf('b', here)
    expect(verdict).toMatchObject({ kind: 'agreed', before: [{ ballot: 3 }, { ballot: 2 }] })
  })

  test('a newer roster that one of its members has not entered never began: neither it nor its newcomers are needed', () => {
    const wide = roster(2, 'abxyz', { ballot: 1, members: five.members })
    const here = { b: { roster: wide, proved: 1 }, d: { roster: five } }
    expect(verdictOf('a', { ...here, a: { roster: five } })).toMatchObject({
      kind: 'agreed',
      members: ['a', 'b', 'd'],
      before: [{ ballot: 1 }],
    })
    expect(verdictOf('d', here).kind).toBe('missing')
  })

  test('a roster with less than half of the old one is ignored, whatever it claims to follow', () => {
    const alone = roster(2, 'bx')
    const here = { a: { roster: five }, b: { roster: alone, proved: 2 } }
    expect(verdictOf('a', here)).toMatchObject({ kind: 'missing', missing: ['c', 'd', 'e'] })
    expect(verdictOf('a', { ...here, c: { roster: five } })).toMatchObject({
      kind: 'agreed',
      before: [{ ballot: 1 }],
    })
  })
})

describe('dead members do not count', () => {
  test('two of five continue when two are dead: the fifth could not continue alone', () => {
    const here = { a: { roster: five }, b: { roster: five } }
    expect(verdictOf('a', here, { d: 1, e: 1 }).kind).toBe('agreed')
    expect(verdictOf('a', here, { e: 1 }).kind).toBe('half')
  })

  test('a member or newcomer that has died since its report is in no roster', () => {
    const said = { a: { roster: five }, b: { roster: five }, c: { roster: five }, x: {} }
    const verdict = verdictOf('a', said, { c: 1, d: 1, x: 0 })
    expect(verdict).toMatchObject({ kind: 'agreed', members: ['a', 'b'] })
  })

  test('a person decides when a dead member had entered a newer roster, since steps are lost', () => {
    const here = { a: { roster: five }, b: { roster: five } }
    expect(verdictOf('a', here, { d: 1, e: 2 })).toEqual({ kind: 'ahead', ahead: ['e'] })
    expect(verdictOf('a', here, { d: 1, e: 1 }).kind).toBe('agreed')
  })

  test("a dead member's claim of a newer roster is ignored when most of the newest are here", () => {
    const here = { a: { roster: five }, b: { roster: five }, c: { roster: five } }
    expect(verdictOf('a', here, { e: 2 ** 31 }).kind).toBe('agreed')
  })

  test('an older roster does not count once all of it are dead', () => {
    const newest = roster(2, 'xy', { ballot: 1, members: ['a', 'b'] })
    const here = { x: { roster: newest, proved: 0 }, y: { roster: newest, proved: 0 } }
    expect(verdictOf('x', here, { a: 1, b: 1 }).kind).toBe('agreed')
    expect(verdictOf('x', here, { a: 1 }).kind).toBe('missing')
  })

  test('a lone survivor continues when all others are dead', () => {
    const dead = { b: 1, c: 1, d: 1, e: 1 }
    expect(verdictOf('a', { a: { roster: five } }, dead)).toMatchObject({
      kind: 'agreed',
      members: ['a'],
    })
  })
})

describe('halves', () => {
  test('two of four are a half, and so are the other two', () => {
    for (const [one, other] of ['ab', 'cd'])
      expect(
        verdictOf(one!, { [one!]: { roster: four }, [other!]: { roster: four } }),
      ).toMatchObject({ kind: 'half', ballots: [1], members: [one, other] })
  })

  test('a half names each roster of which half is here', () => {
    const next = roster(2, 'bc', { ballot: 1, members: four.members })
    const here = { b: { roster: next, proved: 1 }, d: { roster: four } }
    expect(verdictOf('b', here)).toMatchObject({
      kind: 'half',
      ballots: [2, 1],
      missing: ['c', 'a'],
    })
  })

  test('a half names the missing of an older roster when all of the newest are here or dead', () => {
    const next = roster(2, 'ab', { ballot: 1, members: ['a', 'b', 'c'] })
    expect(verdictOf('b', { b: { roster: next, proved: 0 } }, { a: 2 })).toMatchObject({
      kind: 'half',
      ballots: [1],
      missing: ['c'],
    })
  })

  test('winsHalf is true for the half that asked first, and for members that have all of it but the dead', () => {
    const none = new Map<string, number>()
    expect(winsHalf(['a', 'b'], ['a', 'b'], none)).toBe(true)
    expect(winsHalf(['c', 'd'], ['a', 'b'], none)).toBe(false)
    expect(winsHalf(['b', 'c'], ['a', 'b'], none)).toBe(false)
    expect(winsHalf(['b', 'c'], ['a', 'b'], new Map([['a', 1]]))).toBe(true)
  })
})

test('nothing is agreed when nobody here has the state, even if all that live are here', () => {
  const grown = roster(8, 'abx')
  const here = { x: { roster: grown, hasState: false } }
  expect(verdictOf('x', here, { a: 8, b: 8 })).toEqual({ kind: 'ahead', ahead: ['a', 'b'] })
  expect(verdictOf('x', { x: { roster: grown } }, { a: 8, b: 8 })).toMatchObject({ kind: 'agreed' })
})

describe('judge needs a link between any two members', () => {
  test('a member that lacks a link is left out, and named when it is needed', () => {
    const three = roster(1, 'abc')
    const here = {
      a: { roster: three, linked: 'bc' },
      b: { roster: three, linked: 'a' },
      c: { roster: three, linked: 'a' },
    }
    expect(verdictOf('a', here)).toMatchObject({ kind: 'agreed', members: ['a', 'b'] })
    const large = { ...here, a: { roster: five, linked: 'b' }, b: { roster: five, linked: 'a' } }
    expect(verdictOf('a', large)).toEqual({
      kind: 'missing',
      missing: ['c', 'd', 'e'],
      unlinked: ['c'],
    })
  })

  test('a link that only one end has does not count', () => {
    const here = {
      a: { roster: four, linked: 'bx' },
      b: { roster: four, linked: 'ax' },
      x: { linked: 'a' },
    }
    expect(verdictOf('a', here, { d: 1 })).toMatchObject({ members: ['a', 'b'] })
  })

  test('the leader is in its roster', () => {
    const three = roster(1, 'abc')
    const here = {
      a: { roster: three, linked: 'b' },
      b: { roster: three, linked: 'abc' },
      c: { roster: three, linked: 'b' },
    }
    expect(verdictOf('c', here)).toMatchObject({ kind: 'agreed', members: ['b', 'c'] })
  })

  test('a roster has at most as many members as the run takes, newcomers last', () => {
    const here = { x: {}, a: { roster: four }, b: { roster: four }, c: { roster: four }, y: {} }
    expect(verdictOf('a', here, {}, 4)).toMatchObject({ members: ['a', 'b', 'c', 'x'] })
  })
})

describe('ballots', () => {
  test('are above all that a leader has seen, and differ by leader', () => {
    const first = ballotAbove(0, 'a')!
    expect(ballotAbove(first, 'a')!).toBeGreaterThan(first)
    expect(ballotAbove(first, 'b')).not.toBe(ballotAbove(first, 'a'))
  })

  test('end at the largest number that a frame holds', () => {
    expect(ballotAbove(2 ** 16 * (2 ** 16 - 2), 'a')).toBeLessThan(2 ** 32)
    expect(ballotAbove(2 ** 16 * (2 ** 16 - 1), 'a')).toBeNull()
  })
})
