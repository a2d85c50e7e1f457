import { describe, expect, it } from 'vitest'
import { peopleOf } from '../../../src/ui/members/people.tsx'
import { firstView } from '../../../src/ui/page/page-view.ts'
import { understood } from '../../../src/ui/run/understood.tsx'
import { huesByName, huesOf, initialsOf } from '../../../src/ui/state/hues.ts'
import { ratesOf } from '../../../src/ui/state/rates.ts'
import { awaited } from '../../../src/ui/state/run-facts.ts'
import type { Snapshot } from '../../../src/ui/state/snapshot.ts'
import { statusOf } from '../../../src/ui/status/status.ts'
import type { RunEvent } from '../../../src/worker/api.ts'
import {
  assigned,
  inside,
  makeResult,
  makeStates,
  otherDemo,
  play,
  training,
} from '../../support/page-states.ts'

const states = makeStates()
const event = (event: RunEvent) => ({ type: 'event', event, atMs: 0 }) as const
const silent = (who: number): RunEvent => ({ event: 'silent', who, isSilent: true, rank: 0 })

describe('the view that the page begins with', () => {
  const alone = {
    href: 'http://localhost:5173/?seed=2',
    isGuest: false,
    isPlain: false,
    isNarrow: false,
  }

  it.each([
    ['lab', 'settings are in the address on localhost', {}],
    ['show', 'it is the link of a room', { isGuest: true }],
    ['show', 'nothing is in the address', { isPlain: true }],
    ['show', 'the window is that of a phone', { isNarrow: true }],
    ['show', 'localhost is served to others too', { href: 'https://localhost:5173/?seed=2' }],
    ['show', 'it comes from another machine', { href: 'https://192.0.2.2:5173/?seed=2' }],
  ] as const)('is %s when %s', (view, _, arrival) => {
    expect(firstView({ ...alone, ...arrival })).toBe(view)
  })
})

describe('the one number', () => {
  it('says what it will be when there is no figure', () => {
    expect(understood(assigned(3)).words).toBe(
      'Here it will say how many of 100 digits the network gets right.',
    )
  })

  it('is of what the network trains on, then of what is new to it', () => {
    const before = understood(training(3, 100))
    expect(before).toMatchObject({ words: 'of 100 digits that it trains on are right' })
    expect(Number(before.number)).toBeGreaterThan(70)
    const tested = { number: '96', words: 'of 100 new digits are right', note: 'after step 180' }
    expect(understood(training(3, 200))).toEqual(tested)
  })

  it('is in the words of its run when the host chooses another demo for the next', () => {
    const ended = play(training(3, 540, 1), {
      type: 'finished',
      result: makeResult(3),
      bytesSent: 0,
    })
    const { config: proposed } = otherDemo().run!
    expect(understood({ ...ended, proposed })).toEqual(understood(ended))
  })

  it('is 100 only when nothing is wrong', () => {
    const ended = (value: number) =>
      understood(
        play(training(1, 540), {
          type: 'finished',
          result: { ...makeResult(1), value },
          bytesSent: 0,
        }),
      ).number
    expect([0.994, 0.999, 1].map(ended)).toEqual(['99', '99', '100'])
  })

  it('is among how many letters the text guesses', () => {
    expect(understood(otherDemo())).toMatchObject({
      // 2.613 bits.
      number: '1 of 6',
      words: 'it guesses each new letter as if 6 were equally likely',
    })
  })

  it('says for whom all wait when it is stale', () => {
    const waiting = play(training(3, 200), event(silent(1)))
    expect(understood(waiting).note).toBe(
      "after step 180; nothing is newer while all wait for Ada's laptop",
    )
    expect(statusOf(waiting).title).toBe("Waiting for Ada's laptop")
    expect(ratesOf(waiting.run!).secondsLeft).toBeNaN()
  })
})

describe('people', () => {
  const standings = (snapshot: Snapshot) => peopleOf(snapshot).map(({ standing }) => standing)

  it('are one for each tab, with its ranks', () => {
    const ranks = peopleOf(states['lobby-many-ranks']).map((one) => one.ranks)
    expect(ranks).toEqual([3, 1])
    const { lobby, ...rest } = states['lobby-many-ranks']
    const members = lobby!.members.map((one, i) => (i === 1 ? { ...one, attached: false } : one))
    expect(standings({ ...rest, lobby: { ...lobby!, members } })).toEqual(['gone', 'here'])
  })

  it('are marked when they hold the run, wait, do not answer or are gone', () => {
    expect(standings(training(3, 9))).toEqual(['here', 'here', 'here'])
    expect(standings(play(training(3, 9), event(silent(2))))).toEqual(['here', 'here', 'silent'])
    // A rank of the group before this one, which had more.
    expect(awaited(play(training(3, 9), event(silent(20))).run!)).toEqual([])
    expect(standings(states.paused)).toContain('paused')
    expect(standings(inside(3, 0, 'running', 2))).toEqual(['here', 'here', 'waiting'])
    const run = training(3, 9)
    const members = run.lobby!.members.slice(0, 2)
    const left = { ...run, lobby: { ...run.lobby!, members } }
    expect(standings(left)).toEqual(['here', 'here', 'gone'])
  })

  it('have the colours that the server numbers', () => {
    const { lobby } = inside(3)
    const members = lobby!.members.map((one, at) => ({ ...one, hue: at * 3 }))
    expect(members.map(huesOf({ lobby: { ...lobby!, members }, run: null }))).toEqual([
      'var(--hue-0)',
      'var(--hue-3)',
      'var(--hue-6)',
    ])
  })

  it('have none by name where another has the same name', () => {
    const { lobby } = inside(3)
    const [first, second, third] = lobby!.members
    const members = [first, { ...second, name: first.name }, third]
    const ranks = { lobby: { ...lobby!, members }, run: null }
    expect([...huesByName(ranks)]).toEqual([[third.name, huesOf(ranks)(third)]])
  })

  it('have the initials of their first and last word', () => {
    expect(['Ada', 'Grace Hopper', 'Élodie de la Tour', '♥'].map(initialsOf)).toEqual([
      'A',
      'GH',
      'ÉT',
      '?',
    ])
  })
})
