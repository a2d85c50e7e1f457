import { limits } from '../../peer/room/messages.ts'

/** The browser as its user-agent string gives it away, and the system: `Chrome on Linux`. */
export function browserName(userAgent: string): string {
  const has = (text: string) => userAgent.includes(text)
  const browser = has('Edg/')
    ? 'Edge'
    : has('Firefox/')
      ? 'Firefox'
      : has('Chrome/')
        ? 'Chrome'
        : has('Safari/')
          ? 'Safari'
          : 'Browser'
  const system = has('Android')
    ? 'Android'
    : has('iPhone') || has('iPad')
      ? 'iOS'
      : has('Windows')
        ? 'Windows'
        : has('Mac OS')
          ? 'macOS'
          : has('Linux')
            ? 'Linux'
            : ''
  return system ? `${browser} on ${system}` : browser
}

/** `name` as the protocol takes it: one line, not too long; empty when nothing is left. */
export function plainName(name: string): string {
  return name
    .replace(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, limits.nameChars)
}
