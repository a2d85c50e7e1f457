import { existsSync } from 'node:fs'
import {
  createServer as createHttp,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { Readable } from 'node:stream'
import sirv from 'sirv'
import { type ServerFacts, serverFactsPath, signalPath } from '../src/peer/room/messages.ts'
import { TabringError } from '../src/util/errors.ts'
import { type Certificate, lanAddresses, ownCertificate, ownNames } from './certificate.ts'
import { isolationHeaders, pagePolicy } from './headers.ts'
import { ownHosts } from './hosts.ts'
import { listen } from './listen.ts'
import { type Mounts, serveMounts } from './mounts.ts'
import { refuseOtherUpgrades } from './refuse-upgrades.ts'
import { attachSignaling, type SignalServerOptions, type SignalStatus } from './signal-server.ts'
import { serveWritable, type WritableFolders } from './writable-folders.ts'

export const defaultPort = 5173
/** How many ports are tried, from the wanted one up. */
const portsTried = 20

export interface ServeOptions {
  /** The built pages: Vite's output folder. */
  root: string
  /** 0 takes any free port. Default: 5173, or the next free one. */
  port?: number
  /** Fail rather than take another port. */
  strictPort?: boolean
  /** Default: this machine alone. `true`, `0.0.0.0`, `::`: every address it has. Another string: that address. */
  host?: boolean | string
  /** Default: with a certificate, and when `host` is given, because WebGPU exists on other machines' pages over HTTPS only. */
  https?: boolean
  /** A certificate to use; default: our own, made and kept in `.tabring/`. */
  certificate?: Pick<Certificate, 'cert' | 'key'>
  /** Further names under which the server is opened, as of the certificate. */
  names?: readonly string[]
  /** Handlers by exact path. */
  extraRoutes?: Record<string, (request: IncomingMessage, response: ServerResponse) => void>
  /** Folders served read-only as raw bytes, by URL prefix: `{ '/data/': dir }`. The page offers the first. */
  mounts?: Mounts
  /** Folders whose single files may be read, written and removed by whoever knows their URL prefix. */
  writable?: WritableFolders
  /** Its `allowedOrigins` are pages behind a tunnel or proxy: their names are taken as Host headers too. */
  signaling?: SignalServerOptions
  /** The Content-Security-Policy of the pages; null where they are somebody else's. Default: that of the release's pages. */
  policy?: string | null
  /** Takes the WebSockets at `signalPath` in the signaling server's place. */
  attach?: (server: Server) => { close(): Promise<void> }
}

export interface Served {
  port: number
  /** For this machine. */
  localUrl: string
  /** For other machines; empty unless `host` was given. */
  lanUrls: string[]
  /** Set when our own certificate is used. */
  certificate: Certificate | null
  server: Server
  /** Ends every connection and frees the port. */
  close(): Promise<void>
}

/**
 * Serves the built pages and the signaling server on one port, to requests by a name that is its own (see `ownHosts`).
 *
 * errors: `config.invalid` when there is no built page, no free port, or the address is not this machine's.
 */
export async function serve(options: ServeOptions): Promise<Served> {
  const { root, mounts, writable = {}, extraRoutes = {}, policy = pagePolicy } = options
  const host = isWildcard(options.host) ? true : options.host
  const names = options.names ?? []
  const dnsNames = names.filter((name) => !name.startsWith('*'))
  const hosts = [...(typeof host === 'string' ? [host] : []), ...names]
  if (!existsSync(root)) {
    throw new TabringError(
      'config.invalid',
      `serve: expected built pages in ${root}, which does not exist. Run "npm run build".`,
    )
  }
  const isTls = options.https ?? Boolean(options.certificate ?? host)
  let certificate: Certificate | null = null
  if (isTls && !options.certificate) {
    certificate = await ownCertificate({ names: ownNames(hosts) })
  }

  const isOwnHost = ownHosts(options.signaling?.allowedOrigins, hosts)
  let status: (() => SignalStatus) | null = null
  let facts: ServerFacts = {
    lanUrls: [],
    asks: options.signaling?.asks ?? false,
    data: Object.keys(mounts ?? {})[0] ?? null,
  }

  const files = sirv(root, { etag: true })
  const fromMounts = mounts ? serveMounts(mounts) : null
  const fromWritable = serveWritable(writable)
  const handle = (request: IncomingMessage, response: ServerResponse) => {
    for (const [name, value] of Object.entries(isolationHeaders)) response.setHeader(name, value)
    response.setHeader('Cross-Origin-Resource-Policy', 'same-origin')
    response.setHeader('X-Content-Type-Options', 'nosniff')
    response.setHeader('Referrer-Policy', 'no-referrer')
    if (policy !== null) response.setHeader('Content-Security-Policy', policy)
    const path = (request.url ?? '/').split('?')[0]
    // A monitor may know this server by another name.
    if (path === healthPath) {
      sendText(response, 200, 'ok')
      return
    }
    if (!isOwnHost(request.headers.host)) {
      sendText(
        response,
        403,
        `serve: expected localhost or a name or address of this machine, got ${request.headers.host}. Behind a tunnel or proxy, pass its address: npm start -- --allow-origin URL\n`,
      )
      return
    }
    if (path === serverFactsPath) {
      sendJson(response, facts)
      return
    }
    if (path === statusPath && status) {
      if (isLocal(request)) sendJson(response, status())
      else sendText(response, 403, 'The status is for the machine of this server alone.\n')
      return
    }
    if (Object.hasOwn(extraRoutes, path)) {
      extraRoutes[path](request, response)
      return
    }
    const built = () => {
      // Pages are sent whole: sirv throws for a range that ends before it begins, and with it the process ends.
      delete request.headers.range
      response.once('pipe', (file: Readable) => closeTogether(file, response))
      files(request, response, () => sendText(response, 404, `no page ${path}\n`))
    }
    fromWritable(request, response, () => {
      if (fromMounts) fromMounts(request, response, built)
      else built()
    })
  }

  const pems = options.certificate ?? certificate
  const server: Server =
    isTls && pems ? createHttps({ cert: pems.cert, key: pems.key }, handle) : createHttp(handle)
  const address = host === true ? undefined : host || '127.0.0.1'
  const wanted = options.port ?? defaultPort
  const isFixed = wanted === 0 || options.strictPort
  const last = isFixed ? wanted : Math.min(65_535, wanted + portsTried - 1)
  const port = await listen(server, { wanted, last, address })
  let signaling: { close(): Promise<void> }
  if (options.attach) signaling = options.attach(server)
  else {
    const own = attachSignaling(server, { hosts, ...options.signaling })
    signaling = own
    status = () => own.status
  }
  refuseOtherUpgrades(server, [signalPath])

  const scheme = isTls ? 'https' : 'http'
  const urlOf = (name: string) => `${scheme}://${name.includes(':') ? `[${name}]` : name}:${port}/`
  const isLocalName = typeof host !== 'string' || /^(localhost|127\.|::1$)/.test(host)
  const isOpen = host === true || !isLocalName
  const own = host === true ? lanAddresses() : hosts.slice(0, 1)
  // Browsers trust a certificate for its own names alone.
  const lanNames = isOpen ? (dnsNames.length > 0 ? dnsNames : own) : []
  facts = { ...facts, lanUrls: lanNames.map(urlOf) }
  return {
    port,
    localUrl: urlOf(isLocalName ? 'localhost' : host),
    lanUrls: facts.lanUrls,
    certificate,
    server,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()))
      await signaling.close()
      server.closeAllConnections()
      await closed
    },
  }
}

/** What sirv leaves out: a file whose reader has gone is closed, and one that cannot be read ends the answer. */
function closeTogether(file: Readable, response: ServerResponse): void {
  file.once('error', () => response.destroy())
  response.once('close', () => file.destroy())
}

/** Answered with `ok` to anyone, so that a proxy or a monitor sees that the server is up. */
export const healthPath = '/healthz'
/** Counts as JSON (`SignalStatus`), for this machine alone. */
export const statusPath = '/status'

/** Whether a program of this machine asks, and not a proxy of this machine for someone else. */
function isLocal({ socket, headers }: IncomingMessage): boolean {
  if (headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined) return false
  const isHere = (name: string | undefined) =>
    /^(localhost|(::ffff:)?127(\.\d+){3}|\[?::1\]?)(:\d+)?$/i.test(name ?? '')
  return isHere(socket.remoteAddress) && isHere(headers.host)
}

function sendText(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, {
    'Content-Type': 'text/plain; charset=utf-8',
    'Cache-Control': 'no-store',
  })
  response.end(text)
}

function sendJson(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' })
  response.end(JSON.stringify(value))
}

/** Addresses that mean every address. */
function isWildcard(host: boolean | string | undefined): boolean {
  return typeof host === 'string' && /^(0\.0\.0\.0|::0?|\[::\])$/.test(host)
}
