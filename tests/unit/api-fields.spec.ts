import { afterAll, beforeAll, expect, test } from 'vitest'
import { destroyProcessGroup, initProcessGroup } from '../../src/entries/distributed.ts'
import { compile } from '../../src/entries/index.ts'
import { Parameter } from '../../src/entries/nn.ts'
import { type Callable, called, wrongValues } from '../support/api-arguments.ts'
import { complaint } from '../support/api-attempts.ts'
import {
  fieldsWithUses,
  isLayer,
  layerSettings,
  leftOutFields,
  optimizerSettings,
  publicFields,
  withoutSettings,
} from '../support/api-fields.ts'
import { parameterName } from '../support/parameter-names.ts'

// As api-methods.spec.ts, for public fields: setting a wrong value, or the next call that reads it, is refused.

beforeAll(() => initProcessGroup({ rank: 0, worldSize: 1, links: new Map() }))
afterAll(() => destroyProcessGroup())

/** What is wrong with how a value is answered that `isRight`, or is not. */
async function complaintOf(what: string, isRight: boolean, set: () => unknown) {
  try {
    await set()
  } catch (error) {
    return isRight ? `${what}: is refused: ${error}` : complaint(what, error)
  }
  return isRight ? undefined : `${what}: is accepted`
}

const fields = publicFields()

test('the tables of fields name only fields', () => {
  const known = publicFields({}).map(({ name }) => name)
  const names = [...Object.keys(leftOutFields), ...fieldsWithUses]
  expect(names.filter((name) => !known.includes(name))).toEqual([])
})

test.each(fields)('$name answers wrong values with an error of the library', async (field) => {
  const { name, key, make, takes, use } = field
  if (!takes) throw new Error(`${name}: say in tests/support/api-fields.ts what it may be`)
  const complaints: (string | undefined)[] = []
  for (const [what, value] of wrongValues) {
    const [object, wrong] = [make(), value()]
    const set = () => {
      Reflect.set(object, key, wrong, object)
      return use?.(object as never)
    }
    complaints.push(await complaintOf(`${name} = ${what}`, takes(wrong), set))
  }
  expect(complaints.filter(Boolean)).toEqual([])
})

test.each(layerSettings())('$name refuses another value of a setting: $keys', ({ keys, make }) => {
  const complaints: (string | undefined)[] = []
  for (const key of keys) {
    const layer = make()
    const before: unknown = Reflect.get(layer, key)
    for (const [what, value] of wrongValues) {
      try {
        Reflect.set(layer, key, value())
        complaints.push(`${key} = ${what}: is accepted`)
      } catch (error) {
        complaints.push(complaint(`${key} = ${what}`, error))
      }
    }
    expect(Reflect.get(layer, key)).toBe(before)
  }
  expect(complaints.filter(Boolean)).toEqual([])
})

test('layers show the settings that torch.nn gives them', () => {
  const shown = Object.fromEntries(layerSettings().map(({ name, keys }) => [name, keys]))
  expect(shown).toMatchObject({
    Dropout: ['p'],
    BatchNorm2d: ['numFeatures', 'eps', 'momentum'],
    Linear: ['inFeatures', 'outFeatures'],
    LSTMCell: ['inputSize', 'hiddenSize'],
  })
  const takesSettings = (value: Callable) => parameterName(value, 0) !== undefined
  const other = called.filter(
    ([name, value]) => isLayer(value) && takesSettings(value) && !(name in shown),
  )
  expect(other.map(([name]) => name)).toEqual(withoutSettings)
})

test.each(optimizerSettings)(
  '$name refuses to run with a setting that its constructor refuses: $key',
  async ({ name, Class, key }) => {
    const parameter = new Parameter([1], Float32Array.of(1))
    const optimizer = new Class([parameter])
    const [group] = optimizer.paramGroups as unknown as Record<string, unknown>[]
    const step = () => {
      const loss = parameter.square().sum()
      loss.backward()
      optimizer.step()
      return { loss }
    }
    const program = await compile(step, {}, { device: 'reference' })
    const right = group[key]
    const refused = wrongValues.filter(([, value]) => {
      try {
        new Class([parameter], { [key]: value() })
        return false
      } catch {
        return true
      }
    })
    expect(refused.length).toBeGreaterThan(20)
    const complaints: (string | undefined)[] = []
    for (const [what, value] of refused) {
      group[key] = value()
      complaints.push(await complaintOf(`${name} ${key} = ${what}`, false, () => program.run({})))
    }
    expect(complaints.filter(Boolean)).toEqual([])
    expect(optimizer.stepCount).toBe(0)
    group[key] = right
    await program.run({})
    expect([...(await parameter.read())]).not.toEqual([1])
  },
)
