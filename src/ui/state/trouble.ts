import { SignalError } from '../../peer/room/refusals.ts'
import { messageOf } from '../../util/errors.ts'
import { webGpuAdvice } from '../../util/webgpu-advice.ts'

/** Why this tab cannot take part, in words: what is wrong, and what to do about it. */
export interface Trouble {
  /** Stable, for tests and for the look. */
  readonly kind:
    | 'insecure'
    | 'no-webgpu'
    | 'no-adapter'
    | 'device'
    | 'cpu'
    | 'bad-link'
    | 'bad-setting'
    | 'no-server'
    | 'refused'
    | 'removed'
    | 'key'
    | 'worker'
    | 'unknown'
  readonly title: string
  /** What is wrong: one or two sentences. */
  readonly text: string
  /** What to do, one way a line. */
  readonly remedies: readonly string[]
  /** The error as it was thrown, for those who look deeper. */
  readonly detail: string | null
}

/** What of its surroundings decides whether the page can work at all. */
export interface Surroundings {
  readonly isSecureContext: boolean
  readonly hasGpu: boolean
  readonly origin: string
  readonly port: string
}

/** What keeps this page from having a GPU, before anything is tried; null when nothing does. */
export function troubleAhead(page: Surroundings): Trouble | null {
  if (!page.isSecureContext) {
    const local = `http://localhost${page.port ? `:${page.port}` : ''}`
    return {
      kind: 'insecure',
      title: 'This address is not secure, so the browser hides WebGPU',
      text: `Browsers give WebGPU to https pages and to localhost only, and this page was opened as ${page.origin}.`,
      remedies: [
        'On the machine that serves this page run: npm start -- --host. Open the https address that it prints.',
        `There, ${local} works as it is.`,
      ],
      detail: null,
    }
  }
  if (!page.hasGpu) {
    return {
      kind: 'no-webgpu',
      title: 'This browser has no WebGPU',
      text: 'The address asks for WebGPU, and navigator.gpu is missing here.',
      remedies: [webGpuAdvice().missing, 'Or use a current Chrome or Edge.'],
      detail: null,
    }
  }
  return null
}

/** Why this tab did not get into the room, or fell out of it. */
export function troubleOf(thrown: unknown): Trouble {
  const detail = messageOf(thrown)
  const code = thrown instanceof Error && 'code' in thrown ? thrown.code : ''
  const say = (
    kind: Trouble['kind'],
    title: string,
    text: string,
    ...remedies: string[]
  ): Trouble => ({ kind, title, text, remedies, detail })

  if (thrown instanceof SignalError) return refused(thrown)
  if (code === 'gpu.unavailable' && detail.includes('no adapter')) {
    return say(
      'no-adapter',
      'WebGPU found no adapter',
      'This browser has WebGPU, but no graphics adapter.',
      'Turn on hardware acceleration in the browser and restart it.',
      webGpuAdvice().adapter,
    )
  }
  if (detail.startsWith('device: "cpu" ')) {
    const [text, ...ways] = detail.slice('device: '.length).split(/(?<=\.) (?=[A-Z])/)
    return say('cpu', 'The CPU cannot compute in this tab', text, ...ways)
  }
  switch (code) {
    case 'config.invalid':
      if (!detail.startsWith('room link')) {
        const words = say(
          'bad-setting',
          'A setting in this address is not valid',
          detail,
          'Correct or remove it in the address.',
        )
        return { ...words, detail: null }
      }
      return say(
        'bad-link',
        'This room link was changed',
        'The part after # holds the key of the room. It was cut off or changed on the way.',
        'Copy the whole link again and open it.',
      )
    case 'signal.lost':
      return say(
        'no-server',
        'The server does not answer',
        'It connects tabs to each other, and cannot be reached.',
        'Check that npm start still runs where this page comes from, then reload.',
        'A proxy must let WebSockets through.',
      )
    case 'worker.dead':
      return say(
        'worker',
        'The compute worker of this tab has ended',
        'This tab can no longer take part; the others know.',
        'Reload this tab to rejoin.',
      )
    default: {
      const isOfDevice = String(code).startsWith('gpu.')
      const title = isOfDevice ? 'The device failed' : 'Something went wrong'
      return say(isOfDevice ? 'device' : 'unknown', title, detail, 'Reload this tab and try again.')
    }
  }
}

function refused(error: SignalError): Trouble {
  const say = (title: string, text: string, ...remedies: string[]): Trouble => ({
    kind: 'refused',
    title,
    text,
    remedies,
    detail: error.message,
  })
  switch (error.refusal) {
    case 'removed': {
      const words = say(
        'You were removed from this room',
        `${error.by}, the host, removed this tab.`,
        'If that was a mistake, rejoin. If the host has locked the room, ask for its new link.',
        'Or open a new room.',
      )
      return { ...words, kind: 'removed', detail: null }
    }
    case 'idle':
      return say(
        'The server has ended this room',
        'This tab was alone in it for an hour, and nothing changed.',
        'Try again: the same link opens the room again.',
      )
    case 'unknown-room':
      return say(
        'This room is closed',
        'The server has no such room. A room closes when its last member leaves.',
        'Ask for a new link, or open a new room.',
      )
    case 'room-full':
    case 'server-full':
      return say(
        error.refusal === 'room-full' ? 'This room is full' : 'The server is full',
        error.refusal === 'room-full'
          ? 'It has as many members as the server allows in one room.'
          : 'It holds as many rooms as it can.',
        'Wait until someone leaves and reload, or open a new room.',
      )
    case 'bad-proof':
      return say(
        'The key in this link is not the key of the room',
        'The room exists, but the part after # in this address is not its key.',
        'Copy the whole link again from a tab that is in the room.',
      )
    case 'no-key': {
      const words = say(
        'This server wants a key from people who open rooms',
        'The room of this link is not open, and the server makes rooms only for people who have its room key.',
        'Ask the person who runs the server for the key, and enter it below.',
        'Or open the link of a room that is open: that needs no key.',
      )
      return { ...words, kind: 'key', detail: null }
    }
    case 'wrong-key': {
      const words = say(
        'That is not the room key of this server',
        'The server compared the key that was entered in this tab with its own.',
        'Check it for missing characters, and enter it again. The server takes 10 wrong keys, then one a minute.',
      )
      return { ...words, kind: 'key', detail: null }
    }
    case 'declined':
      return say(
        'The host did not let this tab in',
        asSaid(error),
        'Ask the host, then try again.',
        'Or open a new room.',
      )
    case 'foreign-origin':
      return say(
        'The server does not accept this page',
        'The page was opened from an address that its server does not know.',
        'Open the address that npm start printed.',
        'Behind a tunnel or proxy, start the server with npm start -- --allow-origin and the address of this page.',
      )
    case 'wrong-version':
      return say(
        'This page and its server are different versions',
        'One of them was updated while the other was open.',
        'Reload this page; if that does not help, restart the server.',
      )
    default:
      return say('The server refused this tab', asSaid(error), 'Reload to try again.')
  }
}

/** The server's sentence. */
const asSaid = ({ message }: SignalError): string => message.replace(/^signaling: [\w-]+: /, '')
