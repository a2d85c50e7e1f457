import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest'
import { inUnitsOf } from '../../../src/util/byte-units.ts'

// The specs after this one in the same worker load their modules again.
afterAll(() => vi.resetModules())

type Switches = typeof import('../../../src/util/switches.ts')

/** The module as a page or worker loads it that has this address. */
async function load(search: string): Promise<Switches> {
  vi.stubGlobal('location', { search })
  vi.resetModules()
  return import('../../../src/util/switches.ts')
}

const received = vi.spyOn(console, 'info').mockImplementation(() => undefined)
beforeEach(() => received.mockClear())
afterEach(() => {
  vi.unstubAllGlobals()
  vi.unstubAllEnvs()
})

test('without anything given, defaults hold and nothing is logged', async () => {
  const { switchValue } = await load('?seed=3')
  expect([switchValue('debug'), switchValue('naive'), switchValue('variant')]).toEqual([
    0,
    false,
    {},
  ])
  expect(received).not.toHaveBeenCalled()
})

test('code overrides the address, the address the launcher, and the winner is logged once', async () => {
  vi.stubEnv('TABRING_DEBUG', '1')
  vi.stubEnv('TABRING_VARIANT', 'matmul:naive,softmax:lanes')
  const launched = await load('')
  expect(launched.switchValue('debug')).toBe(1)
  expect(launched.switchValue('variant')).toEqual({ matmul: 'naive', softmax: 'lanes' })

  received.mockClear()
  const page = await load('?debug=2&naive')
  expect([page.switchValue('debug'), page.switchValue('naive')]).toEqual([2, true])
  expect(received.mock.calls).toEqual([
    [
      'tabring switches: debug=2 (page parameter over 1 of launcher), naive= (page parameter), variant=matmul:naive,softmax:lanes (launcher)',
    ],
  ])
  page.setSwitches({ debug: 0 })
  expect(page.switchValue('debug')).toBe(0)
  expect(received).toHaveBeenCalledTimes(1)
})

test.each([
  ['64MB', 64_000_000],
  ['1.5GiB', 1_610_612_736],
  ['900KB', 900_000],
  ['4096', 4096],
])('memoryCap=%s is %i bytes', async (text, bytes) => {
  const { switchValue } = await load(`?memoryCap=${text}`)
  expect(switchValue('memoryCap')).toBe(bytes)
})

test.each([
  [64_000_000, 1_234_567, '1.24MB of 64MB'],
  [1_610_612_736, 1_073_741_824, '1GiB of 1.5GiB'],
  [900_000, 4, '4B of 900KB'],
  [64_000_000, 64_000_001, '64.01MB of 64MB'],
  [2 ** 20, 0, '0MiB of 1MiB'],
  [4099, 17, '17B of 4099B'],
])('inUnitsOf a cap of %i writes %i bytes in its units', (cap, bytes, received) => {
  const write = inUnitsOf(cap)
  expect(`${write(bytes)} of ${write(cap)}`).toBe(received)
})

test.each(['64M', '-1', '0', 'much'])('memoryCap=%s is refused', async (text) => {
  const { switchValue } = await load(`?memoryCap=${text}`)
  expect(() => switchValue('memoryCap')).toThrow('memoryCap must be bytes: `64MB`, `1.5GiB`')
})

test('switches in the address override those of the launcher in it', async () => {
  const words = encodeURIComponent('{"debug":"3","trace":true}')
  const { switchValue } = await load(`?launcher=${words}&debug=1`)
  expect([switchValue('debug'), switchValue('trace')]).toEqual([1, true])
})

test('a worker takes over the switches of its page', async () => {
  const { givenSwitches } = await load('?debug=4&variant=matmul:direct-8x8')
  const given = structuredClone(givenSwitches())
  const worker = await load('')
  worker.takeSwitches(given)
  expect(worker.switchValue('debug')).toBe(4)
  expect(worker.switchValue('variant')).toEqual({ matmul: 'direct-8x8' })
  expect(received).not.toHaveBeenCalled()
})

test('an address keeps its switches; the invitation those that change the numbers', async () => {
  const { switchParameters } = await load('?debug=2&naive=1')
  expect(switchParameters()).toEqual([
    ['debug', '2'],
    ['naive', '1'],
  ])
  expect(switchParameters(true)).toEqual([['naive', '1']])
})

test("an address keeps the launcher's switches", async () => {
  const words = '{"visibleDevices":"1"}'
  const { switchParameters } = await load(`?naive=1&launcher=${encodeURIComponent(words)}`)
  expect(switchParameters()).toEqual([
    ['naive', '1'],
    ['launcher', words],
  ])
  expect(switchParameters(true)).toEqual([['naive', '1']])
})

test('a switch that is fixed cannot be set any more', async () => {
  const { fixedSwitch, setSwitches, switchValue } = await load('?visibleDevices=1')
  expect(fixedSwitch('visibleDevices')).toBe('1')
  expect(() => setSwitches({ visibleDevices: '0' })).toThrow(
    'visibleDevices is in use, too late for 0',
  )
  setSwitches({ debug: 1 })
  expect([switchValue('debug'), switchValue('visibleDevices')]).toEqual([1, '1'])
})

test.each([
  ['?debug=6', 'debug must be 0 to 5, got "6" (page parameter)'],
  ['?variant=matmul', 'variant must be `op:variant`, comma-separated, got "matmul"'],
  ['?visibleDevices=0,x', 'visibleDevices must be distinct device numbers, comma-separated'],
  ['?visibleDevices=1,1', 'got "1,1" (page parameter)'],
  ['?launcher={"visibleDevices":2}', 'got the number 2 (launcher)'],
  [
    '?launcher={"naive":{"toString":1}}',
    'naive must be true or false, got an object with toString',
  ],
  [
    '?launcher={"naive":',
    'expected a JSON object in the page parameter "launcher", got "{\\"naive\\":"',
  ],
  ['?launcher=[1]', 'expected a JSON object in the page parameter "launcher"'],
  ['?launcher={"loud":1}', 'unknown switch "loud" (launcher)'],
])('%s is refused', async (search, words) => {
  const { switchValue } = await load(search)
  expect(() => switchValue('debug')).toThrow(words)
})
