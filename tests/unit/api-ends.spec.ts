import { expect, test } from 'vitest'
import { Trace, withTrace } from '../../src/graph/trace/trace.ts'
import { PeerError } from '../../src/util/errors.ts'
import { complaint, complaintOf, isPromise } from '../support/api-attempts.ts'
import { endingClasses, endings, leftOutEnds, methodsOf } from '../support/api-ends.ts'

// As api-methods.spec.ts, for calls after the end: each is refused, or is in the list of those that its documentation allows.

const rows = Object.entries(endings).flatMap(([name, row]) =>
  Object.entries(row.ends).map(([how, end]) => ({ name, how, end, row })),
)

test('every class with a method that ends its objects has a row', () => {
  const known = [...Object.keys(endings), ...Object.keys(leftOutEnds)]
  expect(known.sort()).toEqual(endingClasses().sort())
})

/** What is wrong with an error; one of an epoch that ended says who ended it, in that one's words. */
const judged = (what: string, error: unknown): string | undefined =>
  error instanceof PeerError && error.code === 'peer.aborted' ? undefined : complaint(what, error)

/** What is wrong with a call; 'works' for one that gives a result. */
async function answerOf(what: string, run: () => unknown): Promise<string | undefined> {
  try {
    const result = withTrace(new Trace(), run)
    if (!isPromise(result)) return 'works'
    const answer = result.then(
      () => 'works',
      (error) => judged(what, error),
    )
    return (await complaintOf(what, answer)) ?? (await answer)
  } catch (error) {
    return judged(what, error)
  }
}

test.each(rows)('$name answers every call after $how', async ({ name, end, row }) => {
  const complaints: (string | undefined)[] = []
  const working: string[] = []
  for (const key of methodsOf(await row.make())) {
    const object = (await row.make()) as Record<string, (...given: unknown[]) => unknown>
    await end(object as never)
    const given = row.args?.[key]
    const answer = await answerOf(`${name}.${key}`, () => object[key](...(given?.() ?? [])))
    if (answer === 'works') working.push(key)
    else complaints.push(answer)
  }
  expect(complaints.filter(Boolean)).toEqual([])
  expect(working.sort()).toEqual(row.harmless.split(/\s+/).sort())
})
