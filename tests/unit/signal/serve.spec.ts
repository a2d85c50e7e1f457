import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  realpath,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { request } from 'node:http'
import { request as requestTls } from 'node:https'
import { connect as connectTcp } from 'node:net'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as connectTls } from 'node:tls'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { isGood, lanAddresses, ownCertificate, ownNames } from '../../../node/certificate.ts'
import { idxMount } from '../../../node/data-folder.ts'
import { type Served, serve } from '../../../node/serve.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import { SignalClient, signalUrl } from '../../../src/peer/tab/signal.ts'
import { infoOf } from '../../support/member-info.ts'
import { socketFrom } from '../../support/signal-socket.ts'

/** The server of `npm start` and `npm run train`: its pages and folders, the names it answers to, and its certificate. */

/** Folders as they are read, those with all that is below them as `folder/**`. A test may hold the reads up. */
const disk = vi.hoisted(() => {
  vi.resetModules() // specs before this one may have loaded what is mocked here
  return { reads: [] as string[], atOnce: 0, maxAtOnce: 0, held: Promise.resolve() }
})

vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof import('node:fs/promises')>()
  const read = async (path: string, options?: { recursive?: boolean; withFileTypes: true }) => {
    disk.reads.push(options?.recursive ? join(path, '**') : path)
    disk.maxAtOnce = Math.max(disk.maxAtOnce, ++disk.atOnce)
    try {
      await disk.held
      return await (options ? real.readdir(path, options) : real.readdir(path))
    } finally {
      disk.atOnce--
    }
  }
  return { ...real, readdir: read }
})

describe('serve', () => {
  let folder: string
  const open: Served[] = []
  const start = async (options: Partial<Parameters<typeof serve>[0]> = {}) => {
    const served = await serve({ root: join(folder, 'dist'), port: 0, ...options })
    open.push(served)
    return served
  }

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tabring-serve-'))
    await mkdir(join(folder, 'dist'))
    await mkdir(join(folder, 'data'))
    await mkdir(join(folder, 'data-secret'))
    await writeFile(join(folder, 'dist', 'index.html'), '<p>page</p>')
    await writeFile(join(folder, 'data', 'x.gz'), Buffer.from([0x1f, 0x8b, 1, 2]))
    await writeFile(join(folder, 'data-secret', 'key'), 'secret')
    await mkdir(join(folder, 'data', '.git'))
    await writeFile(join(folder, 'data', '.git', 'config'), 'secret')
    await writeFile(join(folder, 'data', '.env'), 'secret')
    await symlink(join(folder, 'data-secret', 'key'), join(folder, 'data', 'link')).catch(
      () => undefined, // Windows without the privilege
    )
    await symlink(join(folder, 'data', '.env'), join(folder, 'data', 'inner')).catch(
      () => undefined,
    )
  })
  afterEach(async () => {
    for (const one of open.splice(0)) await one.close()
    Object.assign(disk, { reads: [], maxAtOnce: 0, held: Promise.resolve() })
  })
  afterAll(async () => {
    // The specs after this one in the same worker load their modules again.
    vi.resetModules()
    await rm(folder, { recursive: true })
  })

  it('pages, isolation headers, extra routes, 404', async () => {
    const served = await start({
      extraRoutes: { '/hello': (_, response) => response.end('hi') },
    })
    const base = `http://127.0.0.1:${served.port}`
    const page = await fetch(`${base}/`)
    expect(await page.text()).toBe('<p>page</p>')
    expect(page.headers.get('cross-origin-opener-policy')).toBe('same-origin')
    expect(page.headers.get('cross-origin-embedder-policy')).toBe('require-corp')
    expect(page.headers.get('content-security-policy')).toMatch(
      /^default-src 'none'; script-src 'self' .*frame-ancestors 'none'$/,
    )
    expect(page.headers.get('referrer-policy')).toBe('no-referrer')
    expect(page.headers.get('x-content-type-options')).toBe('nosniff')
    expect(await (await fetch(`${base}/hello`)).text()).toBe('hi')
    const missing = await fetch(`${base}/nothing`)
    expect(missing.status).toBe(404)
    expect(missing.headers.get('cross-origin-embedder-policy')).toBe('require-corp')
    expect(served.localUrl).toBe(`http://localhost:${served.port}/`)
    expect(served.lanUrls).toEqual([])
  })

  it('mounted folders: raw bytes, read-only, nothing beside the folder', async () => {
    const served = await start({ mounts: { '/data/': join(folder, 'data') } })
    const get = (path: string, method = 'GET') =>
      new Promise<{ status: number; body: string }>((resolve) => {
        const socket = connectTcp(served.port, '127.0.0.1')
        let text = ''
        socket.on('data', (bytes) => {
          text += bytes.toString('latin1')
        })
        socket.on('close', () =>
          resolve({ status: Number(text.slice(9, 12)), body: text.split('\r\n\r\n')[1] }),
        )
        // By hand: fetch would tidy the path up.
        socket.write(`${method} ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`)
      })
    const file = await fetch(`http://127.0.0.1:${served.port}/data/x.gz`)
    expect(file.headers.get('content-encoding')).toBeNull()
    expect([...new Uint8Array(await file.arrayBuffer())]).toEqual([0x1f, 0x8b, 1, 2])
    const listing = await fetch(`http://127.0.0.1:${served.port}/data/`)
    expect(await listing.json()).toEqual(['x.gz'])
    for (const path of [
      '/data/nothing',
      '/data/../data-secret/',
      '/data/../data-secret/key',
      '/data/..%2fdata-secret%2fkey',
      '/data/%2e%2e/data-secret/key',
      '/data/link',
      '/data/inner',
      '/data/.env',
      '/data/%2eenv',
      '/data/.git/',
      '/data/.git/config',
      '/data/x%00',
    ]) {
      expect([path, (await get(path)).status]).toEqual([path, 404])
    }
    expect((await get('/data/x.gz', 'PUT')).status).toBe(405)
    expect((await get('/%', 'GET')).status).toBeGreaterThanOrEqual(400)
  })

  it.each(['bytes=5-3', 'bytes=0-99999999999999999999', 'bytes=-', 'x'])(
    'a page is sent whole, and the server stays up, for the range %s',
    async (range) => {
      const served = await start()
      const base = `http://127.0.0.1:${served.port}/`
      for (let i = 0; i < 2; i++) {
        const page = await fetch(base, { headers: { range } })
        expect([page.status, await page.text()]).toEqual([200, '<p>page</p>'])
      }
    },
  )

  it.skipIf(process.platform !== 'linux')('a page whose reader has gone is closed', async () => {
    const path = join(folder, 'dist', 'large.js')
    await writeFile(path, 'x'.repeat(2 ** 24))
    const served = await start()
    const openFiles = async () => {
      const names = await readdir('/proc/self/fd')
      const paths = names.map((name) => readlink(`/proc/self/fd/${name}`).catch(() => ''))
      return (await Promise.all(paths)).filter((one) => one === path).length
    }
    const socket = connectTcp(served.port, '127.0.0.1')
    socket.write('GET /large.js HTTP/1.1\r\nHost: localhost\r\n\r\n')
    await once(socket, 'data')
    expect(await openFiles()).toBe(1)
    socket.destroy()
    await expect.poll(openFiles).toBe(0)
  })

  it('the mount of --data serves the four IDX files of its folder and nothing else', async () => {
    const own = join(folder, 'mnist')
    await mkdir(join(own, 'sub'), { recursive: true })
    const offered = ['t10k-labels-idx1-ubyte', 'train-images-idx3-ubyte.gz']
    for (const name of [...offered, 'notes.txt', join('sub', 'train-images-idx3-ubyte')])
      await writeFile(join(own, name), name)
    const { port } = await start({ mounts: { '/data/': idxMount(own) } })
    const get = (path: string) => fetch(`http://127.0.0.1:${port}/data/${path}`)
    expect(await (await get('')).json()).toEqual(offered)
    expect(await (await get(offered[0])).text()).toBe(offered[0])
    for (const path of ['notes.txt', 'sub/', 'sub/train-images-idx3-ubyte']) {
      const answer = await get(path)
      expect([path, answer.status]).toEqual([path, 404])
    }
    expect(disk.reads).toEqual([await realpath(own)])
  })

  it('a listing is read from the disk once a second at most', async () => {
    const own = join(folder, 'listed')
    await mkdir(own)
    const { port } = await start({ mounts: { '/data/': own } })
    const list = async () => (await fetch(`http://127.0.0.1:${port}/data/`)).json()
    const beganMs = performance.now()
    expect(await list()).toEqual([])
    await writeFile(join(own, 'new'), '')
    const again = await list()
    if (performance.now() - beganMs < 1000) expect(again).toEqual([])
    await vi.waitFor(async () => expect(await list()).toEqual(['new']), 5000)
  })

  it('a listing that takes long is read once for all who ask, and other folders wait for its end', async () => {
    await mkdir(join(folder, 'large', 'a'), { recursive: true })
    const own = await realpath(join(folder, 'large'))
    const { port } = await start({ mounts: { '/data/': own } })
    const list = async (name = '') => (await fetch(`http://127.0.0.1:${port}/data/${name}`)).json()
    let release: () => void = () => undefined
    disk.held = new Promise((resolve) => {
      release = resolve
    })
    const first = list()
    await expect.poll(() => disk.reads).toHaveLength(1)
    await sleep(1100)
    const others = [list(), list('a/')]
    await sleep(100)
    release()
    await Promise.all([first, ...others])
    // Its age counts from its end.
    await list()
    expect(disk.reads).toEqual([join(own, '**'), join(own, 'a', '**')])
    expect(disk.maxAtOnce).toBe(1)
  })

  it('a busy port: the next one, or a clear error', async () => {
    const first = await start()
    const second = await start({ port: first.port })
    expect(second.port).toBeGreaterThan(first.port)
    await expect(start({ port: first.port, strictPort: true })).rejects.toThrow(
      `serve: port ${first.port} is in use. Choose another --port.`,
    )
    await expect(start({ host: '203.0.113.1', https: false })).rejects.toThrow(/cannot listen/)
    await expect(start({ root: join(folder, 'none') })).rejects.toThrow(/npm run build/)
  })

  it('ends upgrades to anything but its own paths, and closes while they are open', async () => {
    const served = await start()
    const open = (path: string) =>
      new Promise<string>((resolve) => {
        const socket = connectTcp(served.port, '127.0.0.1')
        let answer = ''
        socket.on('data', (bytes) => {
          answer += bytes
        })
        socket.on('close', () => resolve(answer))
        socket.write(
          `GET ${path} HTTP/1.1\r\nHost: elsewhere\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
        )
      })
    const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => open(`/other${i}`)))
    for (const answer of answers) expect(answer).toMatch(/^HTTP\/1.1 404 /)
    await served.close()
  })

  it('for other machines: HTTPS, its addresses in the certificate, signaling over wss', async () => {
    const certificate = await ownCertificate({ folders: [join(folder, '.tabring')] })
    // Not for the project's repository.
    expect(await readFile(join(folder, '.tabring', '.gitignore'), 'utf8')).toBe('*\n')
    const served = await start({ host: true, certificate })
    const socket = connectTls({ port: served.port, host: '127.0.0.1', rejectUnauthorized: false })
    await once(socket, 'secureConnect')
    const shown = new X509Certificate(socket.getPeerCertificate().raw)
    socket.destroy()
    expect(served.lanUrls).toHaveLength(lanAddresses().length)
    for (const url of [served.localUrl, ...served.lanUrls]) {
      const name = new URL(url).hostname.replace(/^\[|\]$/g, '')
      expect(url).toMatch(/^https:/)
      expect(/^[\d.]+$|:/.test(name) ? shown.checkIP(name) : shown.checkHost(name)).toBeDefined()
    }
    const status = await new Promise((resolve, reject) => {
      requestTls({ port: served.port, host: '127.0.0.1', rejectUnauthorized: false }, (response) =>
        resolve(response.resume().statusCode),
      )
        .on('error', reject)
        .end()
    })
    expect(status).toBe(200)
    const page = { protocol: 'https:', host: `127.0.0.1:${served.port}` }
    const client = new SignalClient({
      url: signalUrl(page),
      link: newRoomLink(),
      info: infoOf('tab', { adapter: { vendor: 'test' } }),
      WebSocket: socketFrom(`https://${page.host}`),
    })
    await client.open()
    client.bye()
  })

  it.each(['0.0.0.0', '::', '[::]'])('--host %s is every address', async (host) => {
    const certificate = await ownCertificate({ folders: [join(folder, '.tabring')] })
    const served = await start({ host, certificate })
    expect(served.localUrl).toBe(`https://localhost:${served.port}/`)
    const names = lanAddresses().map((name) => (name.includes(':') ? `[${name}]` : name))
    expect(served.lanUrls).toEqual(names.map((name) => `https://${name}:${served.port}/`))
  })

  /** The answer to a page request by the name `host`. */
  const getAs = (port: number, host: string, path = '/') =>
    new Promise<{ status: number; body: string }>((resolve, reject) => {
      const headers = { host }
      request({ port, host: '127.0.0.1', path, headers }, (response) => {
        let body = ''
        response.on('data', (bytes) => {
          body += bytes
        })
        response.on('end', () => resolve({ status: response.statusCode!, body }))
      })
        .on('error', reject)
        .end()
    })

  it('answers to its own names only, and to those of allowed origins', async () => {
    const allowedOrigins = ['https://tabs.example', 'https://two.example:8443']
    const served = await start({ signaling: { allowedOrigins } })
    const { port } = served
    const own = ['localhost', `LOCALHOST:${port}`, '127.0.0.1', '[::1]:80', '192.168.1.20:5173']
    const machine = hostname().toLowerCase()
    for (const host of [...own, machine, 'tabs.example', 'two.example:8443']) {
      expect([host, (await getAs(port, host)).status]).toEqual([host, 200])
    }
    const foreign = ['evil.example', `localhost.evil.example:${port}`, `${machine}.evil.example`]
    for (const host of [...foreign, '127.0.0.1.evil.example', 'tabs.example.evil.example']) {
      const { status, body } = await getAs(port, host, '/server.json')
      expect([host, status]).toEqual([host, 403])
      expect(body).toContain('--allow-origin')
      expect(body).toContain(host)
    }
  })

  it('a rebound name opens no room; a page behind a tunnel does', async () => {
    const { port } = await start({ signaling: { allowedOrigins: ['https://tabs.example'] } })
    const firstWords = async (origin: string, host: string) => {
      const headers = { host }
      const socket = new WebSocket(`ws://127.0.0.1:${port}/signal`, { origin, headers })
      const [data] = await once(socket, 'message')
      socket.terminate()
      return JSON.parse(String(data))
    }
    const rebound = await firstWords(`http://evil.example:${port}`, `evil.example:${port}`)
    expect(rebound).toMatchObject({ type: 'error', code: 'foreign-origin' })
    expect(rebound.text).toContain('http://evil.example')
    // The tunnel may keep the name that it was asked by, or put ours in its place.
    for (const host of ['tabs.example', `localhost:${port}`]) {
      expect(await firstWords('https://tabs.example', host)).toMatchObject({ type: 'challenge' })
    }
  })

  it('gives its pages the addresses for other machines, and where data is', async () => {
    const alone = await start({ mounts: { '/data/': join(folder, 'data') } })
    const facts = await getAs(alone.port, 'localhost', '/server.json')
    expect(JSON.parse(facts.body)).toEqual({ lanUrls: [], asks: false, data: '/data/' })
    const plain = await start({ host: true, https: false })
    const { body } = await getAs(plain.port, 'localhost', '/server.json')
    expect(JSON.parse(body)).toEqual({ lanUrls: plain.lanUrls, asks: false, data: null })
  })

  it('a certificate outlives IPv6 addresses, which come and go, but not IPv4 ones', async () => {
    const folders = [join(folder, 'moving')]
    const make = (...addresses: string[]) =>
      ownCertificate({ folders, names: ownNames([], addresses), alsoNames: addresses })
    const first = await make('198.51.100.7', '2001:db8::1', '2001:db8::aaaa')
    const parsed = new X509Certificate(first.cert)
    for (const name of ['198.51.100.7', '2001:db8::1', '2001:db8::aaaa', '127.0.0.1', '::1']) {
      expect([name, parsed.checkIP(name)]).not.toContain(undefined)
    }
    const next = await make('198.51.100.7', '2001:db8::1', '2001:db8::bbbb')
    expect(next).toMatchObject({ isNew: false, cert: first.cert })
    expect((await make('198.51.100.8', '2001:db8::1')).isNew).toBe(true)
    // One that was asked for by name counts: npm start -- --host 2001:db8::cccc
    const names = ownNames(['2001:db8::cccc'], ['198.51.100.8'])
    expect((await ownCertificate({ folders, names, alsoNames: [] })).isNew).toBe(true)
  })

  it('a certificate is kept, and replaced when old or short of a name', async () => {
    const folders = [join(folder, 'missing', '\0'), join(folder, 'kept')]
    const names = ownNames()
    const first = await ownCertificate({ folders, names })
    expect(first).toMatchObject({ isNew: true, folder: folders[1] })
    const second = await ownCertificate({ folders, names })
    expect(second).toMatchObject({ isNew: false, cert: first.cert })
    const third = await ownCertificate({ folders, names: [...names, '198.51.100.7'] })
    expect(third.isNew).toBe(true)
    const dayMs = 86_400_000
    expect(isGood(third.cert, names, Date.now())).toBe(true)
    expect(isGood(third.cert, names, Date.now() + 360 * dayMs)).toBe(true)
    expect(isGood(third.cert, names, Date.now() + 370 * dayMs)).toBe(false)
    expect(isGood(third.cert, names, Date.now() - dayMs)).toBe(false)
    const parsed = new X509Certificate(third.cert)
    const daysLong = (Date.parse(parsed.validTo) - Date.parse(parsed.validFrom)) / dayMs
    expect(daysLong).toBeLessThan(398)
    await writeFile(join(folders[1], 'cert.pem'), 'garbage')
    expect((await ownCertificate({ folders, names })).isNew).toBe(true)
    const nowhere = ownCertificate({ folders: [join(folder, 'dist', 'index.html', 'x')] })
    await expect(nowhere).rejects.toMatchObject({ code: 'file.unwritable' })
  })
})
