import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { idxMount } from '../../../node/data-folder.ts'
import { type Served, serve } from '../../../node/serve.ts'
import { Draw } from '../simulation/draw.ts'
import type { Trace } from '../simulation/trace.ts'
import { mutatedText } from './mutate.ts'
import { Findings, type FuzzOutcome, type FuzzTarget, whereOf } from './target.ts'

/** In every file that no request may get. */
const secret = 'fuzz-secret-9d1c'
const page = '<p>the page</p>'
const writablePrefix = '/saves-00112233445566778899aabbccddeeff/'

/** A request that is whole is answered, and its connection closed, within this time of a busy machine. units: ms. */
const answerMs = 10_000
const closeMs = 15_000

const files: Readonly<Record<string, string>> = {
  'dist/index.html': page,
  'dist/assets/a.js': 'export {}',
  'dist/assets/big.js': 'b'.repeat(2 ** 22),
  'dist/.env': secret,
  'dist/.git/config': secret,
  'data/a.txt': 'a',
  'data/big.bin': 'b'.repeat(2 ** 20),
  'data/sub/b c.txt': 'b',
  'data/.env': secret,
  'data/sub/.git/config': secret,
  'data-more/key': secret,
  'idx/train-images-idx3-ubyte': 'i',
  'idx/notes.txt': secret,
  'saves/model.bin': 's',
  'saves/.hidden': secret,
  key: secret,
}

const segments = [
  ...[
    '..',
    '..',
    '%2e%2e',
    '.%2e',
    '%252e%252e',
    '..%2f',
    '..%5c',
    '..\\',
    '%c0%ae%c0%ae',
    '....',
    '.',
    '',
  ],
  ...[
    '%00',
    '\u0000',
    '%2f',
    '%5c',
    ';',
    '%',
    '%zz',
    '~',
    '*',
    ' ',
    '%20',
    '%0d%0a',
    '?',
    '#',
    '%ff',
  ],
  ...[
    '.env',
    '%2eenv',
    '.git',
    'config',
    'key',
    'link',
    'inner',
    'loop',
    'sub',
    'data',
    'dist',
    'data-more',
  ],
  ...[
    'a.txt',
    'big.bin',
    'index.html',
    'notes.txt',
    'model.bin',
    '.hidden',
    'train-images-idx3-ubyte',
    'b%20c.txt',
  ],
  ...['etc', 'passwd', 'C:', 'con', '__proto__', 'x'.repeat(3000)],
]
const starts = [
  '/',
  '/',
  '//',
  '',
  '/data/',
  '/data/',
  '/data',
  '/idx/',
  writablePrefix,
  writablePrefix,
  '/assets/',
  '/signal',
  '/status',
  '/server.json',
  '/healthz',
  '*',
  'http://localhost/',
  'http://evil.example/data/',
  '\\data\\',
]
const methods = [
  'GET',
  'GET',
  'GET',
  'GET',
  'HEAD',
  'PUT',
  'DELETE',
  'POST',
  'OPTIONS',
  'PATCH',
  'TRACE',
  'PROPFIND',
  'CONNECT',
  'get',
  'G T',
]
const foreignHosts = [
  'evil.example',
  'localhost.evil.example',
  '127.0.0.1.evil.example',
  'evil.example:80',
  'evil.example#localhost',
  'localhost@evil.example',
  '',
]
const ownHosts = ['localhost', '127.0.0.1', '[::1]', 'LOCALHOST:1', '127.0.0.1:99']
const oddHeaders = [
  'Range: bytes=0-0',
  'Range: bytes=5-3',
  'Range: bytes=-5',
  'Range: bytes=99999999999999999999-',
  'Range: bytes=0-99999999999999999999',
  'Range: bytes=0-0,2-3',
  'If-Range: "x"',
  'If-None-Match: *',
  'If-Modified-Since: never',
  'Accept-Encoding: gzip, br',
  'X-Forwarded-For: 127.0.0.1',
  'X-Forwarded-Host: localhost',
  'X-Original-URL: /.env',
  'X-HTTP-Method-Override: PUT',
  'Forwarded: for=127.0.0.1',
  'Cookie: a=b',
  'no colon here',
  'Bad\u0000Name: x',
  ': x',
  'Expect: 200-maybe',
  `X-Long: ${'y'.repeat(20_000)}`,
]

/** What a connection has been sent, and how it is. */
interface Client {
  readonly socket: Socket
  readonly closed: Promise<unknown>
  text: string
}

/** The server of `npm start` with folders, some of whose files nobody may have, and clients that want them. */
class Siege {
  readonly #findings: Findings
  readonly #draw: Draw
  readonly #folder: string
  readonly #served: Served
  readonly #left: Client[] = []

  constructor(findings: Findings, draw: Draw, folder: string, served: Served) {
    this.#findings = findings
    this.#draw = draw
    this.#folder = folder
    this.#served = served
  }

  async run(): Promise<void> {
    const draw = this.#draw
    for (let count = draw.whole(10, 25); count > 0; count--) {
      this.#findings.count('requests')
      await draw.pick([
        () => this.#ask(),
        () => this.#ask(),
        () => this.#ask(),
        () => this.#ask(),
        () => this.#upgrade(),
        () => this.#leaveHalf(),
        () => this.#garble(),
      ])()
      if (draw.isOneIn(8)) await this.#askHonestly()
    }
    await this.#askHonestly()
    for (const { text } of this.#left) this.#checkAnswer(text, 'a request that was not ended')
  }

  /** What the attackers still hold open is let go, but for what the server has to close without their help. */
  letGo(): void {
    for (const { socket } of this.#left) socket.destroy()
  }

  #open(text: string): Client {
    const socket = connect(this.#served.port, '127.0.0.1')
    socket.on('error', () => undefined)
    const client: Client = { socket, closed: once(socket, 'close'), text: '' }
    socket.on('data', (bytes) => {
      client.text += bytes.toString('latin1')
    })
    this.#findings.note(JSON.stringify(text.length > 1500 ? `${text.slice(0, 1500)}…` : text))
    socket.write(text, 'latin1')
    return client
  }

  /** Everything that comes until the server closes the connection. */
  async #answer(text: string): Promise<string> {
    const client = this.#open(text)
    if (!(await isWithin(client.closed, answerMs))) {
      this.#violate(`no answer to ${this.#shown(text)}`)
      client.socket.destroy()
    }
    this.#findings.note(`  ${JSON.stringify(client.text.slice(0, 120))}`)
    return client.text
  }

  #path(): string {
    const draw = this.#draw
    const parts = Array.from({ length: draw.whole(0, 7) }, () => draw.pick(segments))
    const between = draw.pick(['/', '/', '/', '%2f', '\\', ''])
    const absolute = draw.isOneIn(12) ? draw.pick([join(this.#folder, 'key'), '/etc/passwd']) : ''
    const path = draw.pick(starts) + parts.join(between) + absolute
    const whole = draw.isOneIn(30) ? `${path}${'/a'.repeat(draw.pick([500, 9000]))}` : path
    // A request line ends at a space.
    return draw.isOneIn(20) ? whole : whole.replaceAll(' ', '')
  }

  async #ask(): Promise<void> {
    const draw = this.#draw
    const isForeign = draw.isOneIn(4)
    const hosts = isForeign ? foreignHosts : ownHosts
    const lines = [`Host: ${draw.pick(hosts)}`, ...(draw.isOneIn(2) ? [draw.pick(oddHeaders)] : [])]
    const method = draw.pick(methods)
    const body = ['PUT', 'POST', 'PATCH'].includes(method)
      ? 'w'.repeat(draw.pick([0, 5, 4000]))
      : ''
    if (body) lines.push(`Content-Length: ${body.length}`)
    const version = draw.isOneIn(20) ? draw.pick(['1.0', '0.9', '2.0', '9.9']) : '1.1'
    const request = `${method} ${this.#path()} HTTP/${version}\r\n${[...lines, 'Connection: close'].join('\r\n')}\r\n\r\n${body}`
    const answer = await this.#answer(request)
    this.#checkAnswer(answer, this.#shown(request))
    const isOk = /^HTTP\/1\.1 2/.test(answer)
    // Monitors may know the server by another name.
    if (isForeign && isOk && !/^\S+ \/healthz[? ]/.test(request))
      this.#violate(`another name was served: ${this.#shown(request)}`)
  }

  /** A WebSocket that may not be, mostly. */
  async #upgrade(): Promise<void> {
    const draw = this.#draw
    const host = draw.pick([`127.0.0.1:${this.#served.port}`, 'localhost', ...foreignHosts])
    const origins = [
      `http://${host}`,
      'http://evil.example',
      'null',
      '',
      `https://${host}`,
      `http://${host}.evil.example`,
      'http://localhost:1',
    ]
    const origin = draw.isOneIn(6) ? undefined : draw.pick(origins)
    const path = draw.pick([
      '/signal',
      '/signal',
      '/signal',
      '/signal?x',
      '/signal/',
      '/',
      '/data/a.txt',
      '/other',
      '//signal',
    ])
    const lines = [
      `Host: ${host}`,
      'Connection: Upgrade',
      `Upgrade: ${draw.isOneIn(6) ? draw.pick(['h2c', 'x', '']) : 'websocket'}`,
      `Sec-WebSocket-Version: ${draw.isOneIn(6) ? draw.pick(['1', 'x', '']) : 13}`,
      `Sec-WebSocket-Key: ${draw.isOneIn(6) ? 'short' : 'AAAAAAAAAAAAAAAAAAAAAA=='}`,
      ...(origin === undefined ? [] : [`Origin: ${origin}`]),
    ]
    const request = `${draw.isOneIn(12) ? 'POST' : 'GET'} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`
    const client = this.#open(request)
    this.#left.push(client)
    // An upgrade that the server takes stays open; without the header it is another request, whose connection does too.
    const isReport = await isWithin(
      Promise.race([client.closed, once(client.socket, 'data')]),
      answerMs,
    )
    if (!isReport) this.#violate(`no answer to ${this.#shown(request)}`)
    // What frames are wrong in is the WebSocket library's; that the server outlives them is ours.
    if (draw.isOneIn(2))
      client.socket.write(Buffer.from([draw.whole(0, 255), draw.whole(0, 255), 1, 2, 3, 4, 5, 6]))
    const isOwn = origin === `http://${host}` && !foreignHosts.includes(host)
    if (!isOwn && client.text.includes('"challenge"'))
      this.#violate(`a page of ${origin} got into the signaling server: ${this.#shown(request)}`)
  }

  /** A client that continues later, or never. */
  async #leaveHalf(): Promise<void> {
    const draw = this.#draw
    const own = 'Host: localhost\r\n'
    const request = draw.pick([
      'G',
      'GET / HTTP/1.1\r\nHost: local',
      `GET ${this.#path()} HTTP/1.1\r\n${own}`,
      `PUT ${writablePrefix}slow.bin HTTP/1.1\r\n${own}Content-Length: 1000\r\n\r\nfew`,
      `PUT ${writablePrefix}huge.bin HTTP/1.1\r\n${own}Content-Length: 99999999999999999999\r\n\r\n`,
      `PUT ${writablePrefix}many.bin HTTP/1.1\r\n${own}Content-Length: 900000000000000\r\n\r\nfew`,
      `PUT ${writablePrefix}less.bin HTTP/1.1\r\n${own}Content-Length: -5\r\n\r\n`,
      `PUT ${writablePrefix}both.bin HTTP/1.1\r\n${own}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /.env HTTP/1.1\r\n${own}\r\n`,
      `PUT ${writablePrefix}chunk.bin HTTP/1.1\r\n${own}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx`,
      `PUT ${writablePrefix}wait.bin HTTP/1.1\r\n${own}Content-Length: 5\r\nExpect: 100-continue\r\n\r\n`,
      `GET /data/big.bin HTTP/1.1\r\n${own}\r\n`,
      `GET /assets/big.js HTTP/1.1\r\n${own}\r\n`,
      `POST /data/a.txt HTTP/1.1\r\n${own}Content-Length: 5000000\r\n\r\n${'z'.repeat(5000)}`,
    ])
    for (let i = draw.pick([1, 1, 1, 20]); i > 0; i--) {
      const client = this.#open(request)
      if (draw.isOneIn(2)) client.socket.pause()
      this.#left.push(client)
    }
  }

  /** What is hardly a request any more. */
  async #garble(): Promise<void> {
    const whole = `GET ${this.#path()} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: close\r\n\r\n`
    this.#left.push(this.#open(mutatedText(whole, this.#draw)))
  }

  async #askHonestly(): Promise<void> {
    for (const [path, wanted] of [
      ['/', page],
      ['/data/a.txt', 'a'],
      ['/idx/train-images-idx3-ubyte', 'i'],
    ] as const) {
      const answer = await this.#answer(
        `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
      )
      if (!/^HTTP\/1\.1 200/.test(answer) || !answer.endsWith(`\r\n\r\n${wanted}`))
        this.#violate(`an honest request of ${path} got ${JSON.stringify(answer.slice(0, 200))}`)
    }
  }

  #checkAnswer(answer: string, what: string): void {
    const status = /^HTTP\/1\.1 (\d+)/.exec(answer)?.[1]
    if (status) this.#findings.count(`status ${status}`)
    if (status === '500' || status === '502' || status === '503')
      this.#violate(`${status} to ${what}`)
    if (answer.includes(secret) || /root:[^:]*:0:0/.test(answer))
      this.#violate(`a secret was told to ${what}`)
    // A refusal repeats the path of the request.
    const received = status?.startsWith('2') ? answer.slice(answer.indexOf('\r\n\r\n')) : ''
    if (/"[^"]*(\.env|\.git|\.hidden|notes\.txt)/.test(received))
      this.#violate(`a hidden name was told to ${what}`)
  }

  #shown(text: string): string {
    const plain = text
      .replaceAll(this.#folder, '<folder>')
      .replaceAll(String(this.#served.port), '<port>')
    return JSON.stringify(plain.slice(0, 300))
  }

  #violate(text: string): void {
    this.#findings.violate(text)
  }
}

async function isWithin(promise: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), ms)
  })
  const isThere = await Promise.race([
    promise.then(
      () => true,
      () => true,
    ),
    late,
  ])
  clearTimeout(timer)
  return isThere
}

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tabring-fuzz-'))
  for (const [name, text] of Object.entries(files)) {
    await mkdir(join(folder, name, '..'), { recursive: true })
    await writeFile(join(folder, name), text)
  }
  const links = [
    ['key', 'data/link'],
    ['data/.env', 'data/inner'],
    ['.', 'data/loop'],
    ['key', 'saves/link'],
  ] as const
  // Windows without the privilege has none.
  for (const [to, from] of links)
    await symlink(join(folder, to), join(folder, from)).catch(() => undefined)
  return folder
}

/** All files but those that may be written. */
async function treeOf(folder: string): Promise<string> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const own = entries.filter((entry) => entry.isFile() && !entry.parentPath.endsWith('saves'))
  const lines = await Promise.all(
    own.map(async (entry) => {
      const path = join(entry.parentPath, entry.name)
      return `${relative(folder, path)} ${(await readFile(path, 'utf8')).slice(0, 40)}`
    }),
  )
  return lines.sort().join('\n')
}

/** How many files and sockets this process has open; undefined where the system does not say. */
const openCount = async (): Promise<number | undefined> =>
  (await readdir('/proc/self/fd').catch(() => undefined))?.length

async function run(seed: number, trace?: Trace): Promise<FuzzOutcome> {
  const findings = new Findings(trace)
  const openBefore = await openCount()
  const folder = await makeFolder()
  const before = await treeOf(folder)
  const served = await serve({
    root: join(folder, 'dist'),
    port: 0,
    mounts: { '/data/': join(folder, 'data'), '/idx/': idxMount(join(folder, 'idx')) },
    writable: { [writablePrefix]: join(folder, 'saves') },
    signaling: { allowedOrigins: ['https://allowed.example'] },
  })
  const siege = new Siege(findings, new Draw(seed), folder, served)
  try {
    await siege.run()
  } catch (thrown) {
    findings.violate(`an exception left the server: ${whereOf(thrown)}`)
  }
  siege.letGo()
  if (!(await isWithin(served.close(), closeMs))) findings.violate('the server does not close')
  if ((await treeOf(folder)) !== before)
    findings.violate('files outside of the writable folder have changed')
  const kept = await readFile(join(folder, 'key'), 'utf8')
  if (kept !== secret) findings.violate('a file was written through a link')
  await rm(folder, { recursive: true })
  const openAfter = await openCount()
  if (openBefore !== undefined && openAfter !== openBefore)
    findings.violate(`${openAfter! - openBefore} files or sockets more are open than before`)
  return findings
}

export const http: FuzzTarget = {
  name: 'http',
  about: 'paths, origins, headers, methods and slow clients against the server of npm start',
  run,
}
