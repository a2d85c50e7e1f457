import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { destroyProcessGroup, initProcessGroup } from '../../src/entries/distributed.ts'
import { setDefaultDevice } from '../../src/entries/index.ts'
import { complaint } from '../support/api-attempts.ts'
import {
  errorOf,
  leftOutOptions,
  mixedKinds,
  ofEachKind,
  optionsOf,
  withOptions,
} from '../support/api-options.ts'

// As api-arguments.spec.ts, for the options of the exports: each takes values of one kind, and refuses the others with errors of the library.

beforeAll(async () => {
  // No network.
  vi.stubGlobal('fetch', async () => new Response('[]'))
  setDefaultDevice('reference')
  await initProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
})
afterAll(() => {
  destroyProcessGroup()
  setDefaultDevice(null)
  vi.unstubAllGlobals()
})

class OfClass {}

const isText = (value: unknown): boolean => typeof value === 'string'

test('every option of an export refuses values of other kinds with an error of the library', async () => {
  const complaints: unknown[] = []
  const used = new Set<string>()
  let count = 0
  for (const one of withOptions()) {
    for (const { name, options, pass } of await optionsOf(one)) {
      const asClass = await errorOf(() => pass(options[0], undefined, new OfClass()))
      complaints.push(
        asClass ? complaint(name, asClass) : `${name} takes an object of a class for its options`,
      )
      for (const option of options) {
        count++
        const full = `${name} ${option}`
        if (leftOutOptions.includes(full)) continue
        const kinds: string[] = []
        for (const [kind, values] of Object.entries(ofEachKind)) {
          const errors = await Promise.all(
            values.map((value) => errorOf(() => pass(option, value))),
          )
          complaints.push(...errors.filter(Boolean).map((error) => complaint(full, error)))
          if (errors.includes(undefined)) kinds.push(kind)
        }
        const none = await errorOf(() => pass(option, null))
        if (none) complaints.push(complaint(`${full} null`, none))
        if (kinds.length <= 1) continue
        const row = [full, option].find((key) => key in mixedKinds)
        if (row) used.add(row)
        const allowed = row ? mixedKinds[row] : []
        if (kinds.some((kind) => !allowed.includes(kind)))
          complaints.push(`${full} takes ${kinds.join(' ')}`)
      }
    }
  }
  expect(complaints.filter(isText)).toEqual([])
  expect(Object.keys(mixedKinds).filter((name) => !used.has(name))).toEqual([])
  expect(count).toBeGreaterThan(300)
}, 60_000)
