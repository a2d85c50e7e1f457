import { once } from 'node:events'
import { mkdir, mkdtemp, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer, type InlineConfig, preview, resolveConfig } from 'vite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { isStale } from '../../../node/build.ts'
import { isolationHeaders } from '../../../node/headers.ts'
import { type TabringPluginOptions, tabring } from '../../../node/vite-plugin.ts'
import { newRoomUrl } from '../../../src/peer/room/room-url.ts'
import { openStore } from '../../../src/peer/tab/open-store.ts'
import { TabringError } from '../../../src/util/errors.ts'
import { socketFrom } from '../../support/signal-socket.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-plugin-'))
  await mkdir(join(folder, 'dist'))
  await mkdir(join(folder, 'data'))
  await writeFile(join(folder, 'index.html'), '<p>source</p>')
  await writeFile(join(folder, 'dist', 'index.html'), '<p>built</p>')
  await writeFile(join(folder, 'data', 'x.gz'), Buffer.from([0x1f, 0x8b]))
})
afterAll(() => rm(folder, { recursive: true }))

/** The first message of the signaling server on `base`. */
async function challenge(base: string): Promise<string> {
  const socket = new WebSocket(`${base.replace('http', 'ws')}/signal`, { origin: base })
  const [data] = await once(socket, 'message')
  socket.terminate()
  return JSON.parse(String(data)).type
}

describe('the Vite plugin', () => {
  const common = () => ({
    root: folder,
    configFile: false as const,
    logLevel: 'error' as const,
    cacheDir: join(folder, 'cache'),
    plugins: [tabring({ mounts: { '/data/': join(folder, 'data') } })],
  })

  it('dev server: signaling, data, and HMR beside it', async () => {
    const server = await createServer({
      ...common(),
      server: { port: 0, host: '127.0.0.1', watch: null },
    })
    await server.listen()
    const address = server.httpServer!.address() as { port: number }
    const base = `http://127.0.0.1:${address.port}`
    expect(await challenge(base)).toBe('challenge')
    const file = await fetch(`${base}/data/x.gz`)
    expect((await file.arrayBuffer()).byteLength).toBe(2)
    const hmr = new WebSocket(
      `ws://127.0.0.1:${address.port}/?token=${server.config.webSocketToken}`,
      'vite-hmr',
      { origin: base },
    )
    const [greeting] = await once(hmr, 'message')
    expect(JSON.parse(String(greeting)).type).toBe('connected')
    hmr.terminate()
    await server.close()
  })

  it('relays with the option, and not by default', async () => {
    for (const relay of [undefined, true]) {
      const server = await createServer({
        ...common(),
        plugins: [tabring({ relay })],
        server: { port: 0, host: '127.0.0.1', watch: null },
      })
      await server.listen()
      const { port } = server.httpServer!.address() as { port: number }
      const base = `http://127.0.0.1:${port}`
      const store = await openStore(newRoomUrl(base), { WebSocket: socketFrom(base) })
      expect(store.hasRelay).toBe(relay ?? false)
      store.close()
      await server.close()
    }
  })

  it('preview server', async () => {
    const server = await preview({ ...common(), preview: { port: 0, host: '127.0.0.1' } })
    const address = server.httpServer.address() as { port: number }
    const base = `http://127.0.0.1:${address.port}`
    expect(await (await fetch(base)).text()).toContain('built')
    expect(await challenge(base)).toBe('challenge')
    await server.close()
  })
})

describe("the Vite plugin's settings", () => {
  const resolved = (settings: InlineConfig, options?: TabringPluginOptions) =>
    resolveConfig({ configFile: false, ...settings, plugins: [tabring(options)] }, 'serve')

  it('isolate pages and keep workers where they are, and leave what the project says', async () => {
    const plain = await resolved({})
    expect(plain.server.headers).toEqual(isolationHeaders)
    expect(plain.preview.headers).toEqual(isolationHeaders)
    expect(plain.optimizeDeps.exclude).toEqual(['tabring'])
    expect(plain.worker.format).toBe('es')
    const policy = 'Cross-Origin-Embedder-Policy'
    const own = { server: { headers: { [policy]: 'credentialless', 'X-Own': '1' } } }
    const { server, preview } = await resolved({ ...own, worker: { format: 'iife' } })
    expect(server.headers).toMatchObject({ [policy]: 'credentialless', 'X-Own': '1' })
    expect(preview.headers).toEqual(server.headers)
    const open = await resolved(own, { crossOriginIsolated: false })
    expect(open.server.headers).toEqual(own.server.headers)
  })

  it.each([
    [{ mount: {} }, 'got "mount"'],
    [{ mounts: { data: '.' } }, 'expected a prefix that starts and ends with "/", got "data"'],
    [{ crossOriginIsolated: 1 }, 'crossOriginIsolated must be true or false, got 1'],
    [{ maxConnections: 0 }, 'maxConnections must be a whole number above 0, got 0'],
    [{ hosts: 'a.example' }, 'hosts must be a list of names like "train.example.org"'],
    [{ hosts: ['http://a.example'] }, 'got "http://a.example"'],
    [{ allowedOrigins: ['https://a.example/'] }, 'got "https://a.example/"'],
  ])('%j is refused', (options, text) => {
    expect(() => tabring(options as TabringPluginOptions)).toThrow(text)
    expect(() => tabring(options as TabringPluginOptions)).toThrow(TabringError)
  })
})

describe('a stale build', () => {
  it('is missing, or older than a source, a page or a deletion', async () => {
    const root = join(folder, 'project')
    await mkdir(join(root, 'src', 'deep'), { recursive: true })
    const at = async (name: string, seconds: number) => {
      await utimes(join(root, name), seconds, seconds)
    }
    const put = async (name: string, seconds: number) => {
      await writeFile(join(root, name), 'x')
      await at(name, seconds)
    }
    await put('src/deep/a.ts', 100)
    await put('index.html', 100)
    await at('src/deep', 100)
    await at('src', 100)
    expect(await isStale(root)).toBe(true)
    await mkdir(join(root, 'dist'))
    await put('dist/index.html', 200)
    expect(await isStale(root)).toBe(false)
    await at('src/deep', 300) // a file went away
    expect(await isStale(root)).toBe(true)
    await put('dist/index.html', 400)
    expect(await isStale(root)).toBe(false)
    await put('bench.html', 500)
    expect(await isStale(root)).toBe(true)
  })
})
