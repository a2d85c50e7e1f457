import { afterAll, beforeAll, expect, test } from 'vitest'
import { destroyProcessGroup, initProcessGroup } from '../../src/entries/distributed.ts'
import { Trace, withTrace } from '../../src/graph/trace/trace.ts'
import { exported } from '../support/api-arguments.ts'
import { attemptsOf, complaint, complaintOf, isPromise } from '../support/api-attempts.ts'
import {
  leftOutMethods,
  type Method,
  methodsWithArguments,
  publicMethods,
} from '../support/api-methods.ts'
import { misnamed } from '../support/parameter-names.ts'

// As api-arguments.spec.ts, for the methods of the exported classes.

beforeAll(() => initProcessGroup({ rank: 0, worldSize: 1, links: new Map() }))
afterAll(() => destroyProcessGroup())

const isPlain = (value: unknown): boolean =>
  ['number', 'string', 'boolean'].includes(typeof value) && !Number.isNaN(value)

/** What an accepted call made of the object's own plain values. */
function nonsenseIn(what: string, before: object, object: object): string | undefined {
  const now = object as Record<string, unknown>
  const changed = Object.entries(before).find(
    ([name, value]) => isPlain(value) && (typeof now[name] !== typeof value || !isPlain(now[name])),
  )
  return changed && `${what}: is accepted, and ${changed[0]} is ${String(now[changed[0]])}`
}

async function complaintsOf(method: Method): Promise<(string | undefined)[]> {
  const { name, key, make, args, taken, isTraced } = method
  const complaints: (string | undefined)[] = []
  const waiting: Promise<string | undefined>[] = []
  const attempts = [{ what: `${name}()`, change: () => [] }, ...attemptsOf(name, taken)]
  let object = make() as Record<string, (...given: unknown[]) => unknown>
  for (const { what, change } of attempts) {
    let given: unknown[] = []
    const before = { ...object }
    const run = () => {
      given = change(args())
      return object[key](...given)
    }
    try {
      const result = isTraced ? withTrace(new Trace(), run) : run()
      if (isPromise(result)) waiting.push(complaintOf(what, result))
      // What is no number is one of the answers for what is no number.
      if (!given.some(Number.isNaN)) complaints.push(nonsenseIn(what, before, object))
      object = make() as typeof object
    } catch (error) {
      const isOfTensor = name.startsWith('Tensor.')
      complaints.push(complaint(what, error) ?? (isOfTensor ? misnamed(name, error) : undefined))
    }
  }
  return [...complaints, ...(await Promise.all(waiting))].filter(Boolean)
}

const methods = publicMethods()

test('the tables of methods name only methods', () => {
  const known = [...exported.map(([name]) => name), ...publicMethods({}).map(({ name }) => name)]
  const names = [...Object.keys(leftOutMethods), ...methodsWithArguments]
  expect(names.filter((name) => !known.includes(name))).toEqual([])
})

test.each(methods)('$name answers wrong arguments with an error of the library', async (method) => {
  expect(await complaintsOf(method)).toEqual([])
})
