import type { Snapshot } from '../state/snapshot.ts'

export { withCode } from './with-code.tsx'

/** Loaded when it is needed: only types are imported, so that no more is loaded with it. */

interface Room extends Pick<Snapshot, 'transport' | 'hasRelay'> {
  /** Its maker, by name; null for this tab. */
  readonly maker: string | null
  /** It is in a run. */
  readonly isOn: boolean
}

/** What to do where a link could not be made, one way a line. */
export function remediesFor({ transport, hasRelay, maker, isOn }: Room): string[] {
  const choose =
    'choose “automatic, else through the server” for Links under More settings, rejoin, and send everyone the new link'
  const relay =
    transport === 'fallback' || transport === 'relay'
      ? []
      : hasRelay
        ? [`This server can relay the data: ${choose}.`]
        : [
            `Or let the server relay the data: start it with npm start -- --host --relay, then ${choose}.`,
          ]
  const without = `${maker === null ? 'Or start' : `Or ask ${maker} to start`} without the members that cannot be reached.`
  return [
    'Put all machines on the same network. Avoid guest networks, which often keep devices apart.',
    'Across a firewall, start the server with a TURN server: npm start -- --host --ice-servers turn:HOST:3478 (see docs/reference/launching.md).',
    ...relay,
    ...(isOn ? [] : [without]),
  ]
}
