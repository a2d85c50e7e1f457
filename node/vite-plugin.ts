import type { Plugin, PreviewServer, ViteDevServer } from 'vite'
import { TabringError } from '../src/util/errors.ts'
import { checkFlag, checkNumber, checkOptions, isCount } from '../src/util/options.ts'
import { isolationHeaders } from './headers.ts'
import { iceSource } from './ice/ice-source.ts'
import { serveMounts } from './mounts.ts'
import { attachSignaling, type UpgradeServer } from './signal-server.ts'

// Written out, not taken over from the signaling server's options: a user's compiler reads this with the package's files alone.
export interface TabringPluginOptions {
  /** Folders served read-only, by URL prefix: `{ '/data/': '/home/me/mnist' }`. A folder's address gives the list of its files. */
  mounts?: Readonly<Record<string, string>>
  /** Whether pages are isolated from other origins, for clocks of 5 µs instead of 100 µs. Default true; false lets a page embed what other origins serve. */
  isIsolated?: boolean
  /** Origins whose pages may use the signaling server besides its own, exactly as browsers write them: `https://example.org:8443`. */
  allowedOrigins?: readonly string[]
  /** Names of this machine besides localhost, addresses in digits, and those that it knows itself. */
  hosts?: readonly string[]
  /** Whether tabs may send their data through the signaling server, sealed end to end, where WebRTC does not get through. Default false. */
  relay?: boolean
  /** Open signaling sockets of one IP address. Default 256, with the relay 768. */
  maxConnectionsPerIp?: number
  /** Default 2,000. */
  maxConnections?: number
  /**
   * STUN and TURN servers that tabs are told of; default none. A TURN server without a login takes `turnSecret`, which stays here: each tab
   * gets credentials that are made from it and that end `turnLifetimeMs` later, by default an hour.
   */
  ice?: {
    iceServers: readonly {
      urls: string | readonly string[]
      username?: string
      credential?: string
    }[]
    turnSecret?: string
    turnLifetimeMs?: number
  }
  /** One line for each socket that is refused; silent by default. */
  log?: (line: string) => void
}

/**
 * Returns the plugin that a Vite project needs to train with Tabring: `plugins: [tabring()]`.
 *
 * It puts the signaling server on the port of Vite's dev and preview servers, serves data folders, and keeps the library's workers where it
 * finds them.
 * errors: `config.invalid` for an option that there is not, or a value that it cannot have.
 */
export function tabring(options: TabringPluginOptions = {}): Plugin {
  check(options)
  const { mounts, isIsolated = true, ...signaling } = options
  const mounted = mounts && serveMounts(mounts)
  const attach = (server: ViteDevServer | PreviewServer) => {
    if (mounted) server.middlewares.use(mounted)
    // Null in middleware mode: whoever owns the server attaches signaling to it.
    if (server.httpServer) attachSignaling(server.httpServer as UpgradeServer, signaling)
  }
  return {
    name: 'tabring',
    config: ({ server, preview, worker }) => ({
      // What is bundled in advance lies apart from the library's worker files.
      optimizeDeps: { exclude: ['tabring'] },
      // Workers that import the library load parts of it late, which the other format cannot.
      worker: { format: worker?.format ?? 'es' },
      ...(isIsolated && {
        server: { headers: { ...isolationHeaders, ...server?.headers } },
        preview: { headers: { ...isolationHeaders, ...(preview?.headers ?? server?.headers) } },
      }),
    }),
    configureServer: attach,
    configurePreviewServer: attach,
  }
}

const where = 'tabring'

function check(options: TabringPluginOptions): void {
  checkOptions(where, options, {
    mounts: true,
    isIsolated: true,
    allowedOrigins: true,
    hosts: true,
    relay: true,
    maxConnectionsPerIp: true,
    maxConnections: true,
    ice: true,
    log: true,
  })
  checkFlag(where, 'isIsolated', options.isIsolated)
  if (options.ice !== undefined) iceSource(`${where}: ice`, options.ice)
  checkFlag(where, 'relay', options.relay)
  for (const name of ['maxConnectionsPerIp', 'maxConnections'] as const) {
    checkNumber(where, name, options[name], isCount, 'a whole number above 0')
  }
  checkNames('hosts', options.hosts, 'names like "train.example.org"', (host) =>
    /^[^\s/:]+$/.test(host),
  )
  checkNames(
    'allowedOrigins',
    options.allowedOrigins,
    'origins like "https://example.org:8443"',
    (origin) => URL.canParse(origin) && new URL(origin).origin === origin,
  )
}

function checkNames(
  name: string,
  values: readonly string[] | undefined,
  expected: string,
  isValid: (value: string) => boolean,
): void {
  if (values === undefined) return
  const wrong = Array.isArray(values)
    ? values.find((value) => typeof value !== 'string' || !isValid(value))
    : values
  if (wrong === undefined) return
  throw new TabringError(
    'config.invalid',
    `${where}: ${name} must be a list of ${expected}, got ${JSON.stringify(wrong)}. Correct it.`,
  )
}
