import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { type IncomingHttpHeaders, request } from 'node:http'
import { request as requestTls } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it, test } from 'vitest'
import { lanAddresses, ownCertificate } from '../../../node/certificate.ts'
import { givenCertificate } from '../../../node/given-certificate.ts'
import { type Served, serve } from '../../../node/serve.ts'
import { newRoomUrl } from '../../../src/peer/room/room-url.ts'
import { openStore } from '../../../src/peer/tab/open-store.ts'
import { socketFrom } from '../../support/signal-socket.ts'

/** What a server offers the person who runs it: its health, its counts, their own certificate. */

let folder: string
const at = (...names: string[]) => join(folder, ...names)
const open: Served[] = []
async function start(options: Partial<Parameters<typeof serve>[0]> = {}): Promise<Served> {
  const served = await serve({ root: at('dist'), port: 0, ...options })
  open.push(served)
  return served
}
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-owner-'))
  await mkdir(at('dist'))
  await writeFile(at('dist', 'index.html'), '<p>page</p>')
  const names = ['train.example.org', '*.rooms.example.org', '127.0.0.1']
  await ownCertificate({ names, alsoNames: [], folders: [at('own')] })
  await ownCertificate({ names, alsoNames: [], folders: [at('other')] })
})
afterEach(async () => {
  for (const one of open.splice(0)) await one.close()
})
afterAll(() => rm(folder, { recursive: true }))

function get(
  { port }: Served,
  path: string,
  {
    headers = {},
    address = '127.0.0.1',
    isTls = false,
  }: { headers?: IncomingHttpHeaders; address?: string; isTls?: boolean } = {},
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const options = { host: address, port, path, headers, rejectUnauthorized: false }
    const asked = (isTls ? requestTls : request)(options, (response) => {
      let body = ''
      response.on('data', (part) => {
        body += part
      })
      response.on('end', () => resolve({ status: response.statusCode!, body }))
    })
    asked.on('error', reject)
    asked.end()
  })
}

describe('/healthz', () => {
  it('answers ok under any name', async () => {
    const served = await start()
    for (const host of ['localhost', 'load-balancer.example']) {
      expect(await get(served, '/healthz', { headers: { host } })).toEqual({
        status: 200,
        body: 'ok',
      })
    }
  })
})

describe('/status', () => {
  const origin = ({ port }: Served) => `http://127.0.0.1:${port}`

  it('counts rooms, members, sockets, relayed bytes and refusals', async () => {
    const served = await start()
    const WebSocket = socketFrom(origin(served))
    const url = newRoomUrl(origin(served))
    const store = await openStore(url, { WebSocket })
    const foreign = socketFrom('https://evil.example')
    await expect(openStore(url, { WebSocket: foreign })).rejects.toThrow(/foreign-origin/)
    const { status, body } = await get(served, '/status')
    expect(status).toBe(200)
    expect(JSON.parse(body)).toEqual({
      ...{ rooms: 1, members: 0, guests: 1, sockets: 1, relayedBytes: 0, refused: 1 },
    })
    store.close()
  })

  it.each([
    ['for whom a proxy asks', { 'x-forwarded-for': '203.0.113.9' }],
    ['for whom another proxy asks', { forwarded: 'for=203.0.113.9' }],
    ['who asks by another name', { host: '192.0.2.1' }],
  ])('is not for one %s', async (_, headers) => {
    const served = await start()
    const { status, body } = await get(served, '/status', { headers })
    expect([status, body]).toEqual([403, 'The status is for the machine of this server alone.\n'])
  })

  const [outside] = lanAddresses().filter((address) => !address.includes(':'))
  it.skipIf(!outside)('is not for other machines', async () => {
    const served = await start({ host: true, https: false })
    const headers = { host: `localhost:${served.port}` }
    expect((await get(served, '/status', { headers, address: outside })).status).toBe(403)
    expect((await get(served, '/status', { headers })).status).toBe(200)
  })
})

describe('a certificate of the person’s own', () => {
  const own = () => givenCertificate({ cert: at('own', 'cert.pem'), key: at('own', 'key.pem') })

  it('serves https under its names, those with a star too, and no others', async () => {
    const given = (await own())!
    expect(given.names).toEqual(['train.example.org', '*.rooms.example.org'])
    const served = await start({ certificate: given, names: given.names })
    const statusOf = async (host: string) =>
      (await get(served, '/', { headers: { host }, isTls: true })).status
    expect(await statusOf('train.example.org')).toBe(200)
    expect(await statusOf('TRAIN.example.org:8443')).toBe(200)
    expect(await statusOf('a.rooms.example.org')).toBe(200)
    expect(await statusOf('a.b.rooms.example.org')).toBe(403)
    expect(await statusOf('rooms.example.org')).toBe(403)
    expect(served.certificate).toBeNull()
    expect(served.lanUrls).toEqual([])
  })

  it('lets its pages make rooms, and names its address for other machines', async () => {
    const given = (await own())!
    const served = await start({ certificate: given, names: given.names, host: true })
    expect(served.lanUrls).toEqual([`https://train.example.org:${served.port}/`])
    const store = await openStore(newRoomUrl(`https://127.0.0.1:${served.port}`), {
      WebSocket: socketFrom(`https://127.0.0.1:${served.port}`),
    })
    store.close()
  })

  it('is null without the flags', async () => {
    expect(await givenCertificate({})).toBeNull()
  })

  test.each<[string, () => Parameters<typeof givenCertificate>[0], RegExp]>([
    ['a certificate alone', () => ({ cert: at('own', 'cert.pem') }), /^--cert: needs --key/],
    ['a key alone', () => ({ key: at('own', 'key.pem') }), /^--key: needs --cert/],
    [
      'a missing file',
      () => ({ cert: at('none.pem'), key: at('own', 'key.pem') }),
      /^--cert: cannot read .*none\.pem/,
    ],
    [
      'a file that is no certificate',
      () => ({ cert: at('own', 'key.pem'), key: at('own', 'key.pem') }),
      /^--cert: expected a certificate as PEM in .*key\.pem/,
    ],
    [
      'the key of another',
      () => ({ cert: at('own', 'cert.pem'), key: at('other', 'key.pem') }),
      /^--key: expected the key of .*cert\.pem/,
    ],
  ])('%s is refused', async (_, files, expected) => {
    await expect(givenCertificate(files())).rejects.toThrow(expected)
    await expect(givenCertificate(files())).rejects.toMatchObject({ code: 'config.invalid' })
  })

  it('that has expired is refused', async () => {
    const files = { cert: at('own', 'cert.pem'), key: at('own', 'key.pem') }
    const inTwoYears = Date.now() + 2 * 365 * 86_400_000
    await expect(givenCertificate(files, inTwoYears)).rejects.toThrow(/has expired on .*Renew it/)
  })
})
