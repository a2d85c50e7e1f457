import type { TransportChoice } from '../../peer/room/messages.ts'
import { givenData } from '../../trainer/settings/config.ts'
import type { Experiments } from '../../trainer/settings/experiments.ts'
import { switchParameters } from '../../util/switches.ts'
import { lessonParameter } from '../lesson/lesson.ts'
import { defaultDraftOf } from './draft.ts'
import { type Draft, settings } from './list.ts'

/** Reads a query like `?model=cnn&epochs=5`; what it does not name keeps its default. Wrong values stay, and are shown as errors. */
export function draftFromQuery(experiments: Experiments, query: string): Draft {
  const parameters = new URLSearchParams(query)
  const named = settings.flatMap(({ key }) => {
    const value = parameters.get(key)
    return value === null ? [] : [[key, value.slice(0, 1000)]]
  })
  const demo = parameters.get('demo')?.slice(0, 1000)
  const draft: Draft = { ...defaultDraftOf(experiments, demo), ...Object.fromEntries(named) }
  return givenInQuery(query) === null ? draft : { ...draft, data: givenData }
}

/** Data in an address, as a demo wrote it there; null for none. */
export const givenInQuery = (query: string): string | null =>
  new URLSearchParams(query).get('given')

/**
 * The query that gives `draft`, the lesson that the page is open for, and the page's switches again: what differs from the defaults, in the list's order; empty or with its `?`.
 *
 * Data that a person gave is in it only as the demo wrote it for an address, in `given`: a page that has not got it asks for the demo's own.
 */
export function queryOf(
  experiments: Experiments,
  draft: Draft,
  given: Readonly<Record<string, string | null>> = {},
  lesson: string | null = null,
): string {
  const defaults = { ...defaultDraftOf(experiments, draft.demo), demo: experiments.first }
  const isGiven = draft.data === givenData
  const text = Object.hasOwn(given, draft.demo) && given[draft.demo]
  const own = settings.filter(
    ({ key }) => draft[key] !== defaults[key] && !(isGiven && key === 'data'),
  )
  return toQuery([
    ...lessonIn(lesson),
    ...own.map(({ key }) => [key, draft[key]]),
    ...(isGiven && text ? [['given', text]] : []),
    ...switchParameters(),
  ])
}

/** The query of the link that others open: a demo, a lesson, this tab's links, and the switches that all ranks should have. */
export const inviteQuery = (
  { first, has }: Experiments,
  transport: TransportChoice,
  demo: string,
  lesson: string | null = null,
): string =>
  toQuery([
    ...lessonIn(lesson),
    ...(demo === first || !has(demo) ? [] : [['demo', demo]]),
    ...(transport === 'auto' ? [] : [['transport', transport]]),
    ...switchParameters(true),
  ])

const lessonIn = (lesson: string | null): string[][] =>
  lesson === null ? [] : [[lessonParameter, lesson]]

function toQuery(parameters: readonly string[][]): string {
  const text = new URLSearchParams(parameters as [string, string][]).toString()
  return text === '' ? '' : `?${text}`
}
