import { render } from 'preact'
import '../../src/ui/theme.css'
import '../../src/ui/demo-page.css'
import './ring.css'
import { RingPage } from './page.tsx'

render(<RingPage />, document.getElementById('app')!)
