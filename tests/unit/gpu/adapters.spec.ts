import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { listAdapters } from '../../../src/gpu/adapters.ts'

// What a page can ask a browser for, by the options of requestAdapter.
type Info = Partial<GPUAdapterInfo>
interface Browser {
  readonly fast: Info | null
  readonly thrifty: Info | null
  readonly fallback: Info | null
}

const geforce: Info = { vendor: 'nvidia', architecture: 'lovelace' }
const iris: Info = { vendor: 'intel', architecture: 'xe' }
const software: Info = { vendor: 'google', architecture: 'swiftshader', isFallbackAdapter: true }

let asked: GPURequestAdapterOptions[]
function stub({ fast, thrifty, fallback }: Browser): void {
  const requestAdapter = async (options: GPURequestAdapterOptions = {}) => {
    asked.push(options)
    const ofPower = options.powerPreference === 'low-power' ? thrifty : fast
    const info = options.forceFallbackAdapter ? fallback : ofPower
    return info && { info: { vendor: '', architecture: '', device: '', description: '', ...info } }
  }
  vi.stubGlobal('isSecureContext', true)
  vi.stubGlobal('navigator', { gpu: { requestAdapter } })
}
beforeEach(() => {
  asked = []
})
afterEach(() => vi.unstubAllGlobals())

const named = async (max?: number) =>
  (await listAdapters(max)).map(
    ({ info }) => info.architecture || `fallback ${info.isFallbackAdapter}`,
  )

test.each<[string, Browser, string[]]>([
  [
    'two GPUs and the software adapter, which comes last',
    { fast: geforce, thrifty: iris, fallback: software },
    ['lovelace', 'xe', 'swiftshader'],
  ],
  [
    'one GPU that both preferences give',
    { fast: iris, thrifty: iris, fallback: software },
    ['xe', 'swiftshader'],
  ],
  ['no software adapter', { fast: geforce, thrifty: iris, fallback: null }, ['lovelace', 'xe']],
  [
    'a software adapter that is all there is, counted once',
    { fast: software, thrifty: software, fallback: software },
    ['swiftshader'],
  ],
  [
    'the same one where the browser owns up to it only when asked for it',
    { fast: { ...software, isFallbackAdapter: false }, thrifty: null, fallback: software },
    ['swiftshader'],
  ],
  [
    'a software adapter that only forcing gives',
    { fast: null, thrifty: null, fallback: software },
    ['swiftshader'],
  ],
  [
    'adapters without names: a software one is another than the GPU',
    { fast: {}, thrifty: {}, fallback: { isFallbackAdapter: true } },
    ['fallback undefined', 'fallback true'],
  ],
  ['no adapter', { fast: null, thrifty: null, fallback: null }, []],
])('%s', async (_, browser, expected) => {
  stub(browser)
  expect(await named()).toEqual(expected)
})

test('no more are asked for than are wanted: the first is a GPU where there is one', async () => {
  stub({ fast: geforce, thrifty: iris, fallback: software })
  expect(await named(1)).toEqual(['lovelace'])
  expect(asked).toEqual([{ powerPreference: 'high-performance' }])
})
