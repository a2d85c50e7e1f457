import { once } from 'node:events'
import { mkdir, mkdtemp, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer, preview } from 'vite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { isStale } from '../../../node/build.ts'
import { tabring } from '../../../node/vite-plugin.ts'

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

  it('preview server', async () => {
    const server = await preview({ ...common(), preview: { port: 0, host: '127.0.0.1' } })
    const address = server.httpServer.address() as { port: number }
    const base = `http://127.0.0.1:${address.port}`
    expect(await (await fetch(base)).text()).toContain('built')
    expect(await challenge(base)).toBe('challenge')
    await server.close()
  })
})

describe('what is stale', () => {
  it('is never built, or older than a source, a page or a deletion', async () => {
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
